"""The diagnosis: a card per finding, as text and as HTML. Everything from a rank is escaped."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from html import escape
from typing import TextIO

from ddpnb.model import phrases
from ddpnb.model.calls import Site
from ddpnb.model.findings import Diagnosis, Finding, Hint
from ddpnb.render import markup
from ddpnb.render.terminal import Paragraph, output, wants_colour

HEADLINES = {
    "ok": "ok: the script completed on all ranks",
    "hang": "hang: the ranks cannot continue",
    "crash": "crash: a rank failed",
    "divergence": "divergence: completed, but the ranks diverged",
    "interrupted": "interrupted: the script was still running",
}
_ICONS = {"error": "stop", "warning": "warning", "note": "wait", "ok": "done"}
_CERTAINTY = {
    "proven": "",
    "timed": "Not proven: no progress for as long as patience, or the time-out, allows.",
    "likely": "Likely, not proven: a part of this is inferred.",
}
_FINDINGS = 16  # written out in full as text
_PLACES = 8
_FILES = 32  # that sentences may name
_PATH = 1000  # characters of a path
_CODE = re.compile(r"`([^`]+)`")


def text(diagnosis: Diagnosis, *, colour: bool = False, width: int | None = None) -> str:
    """The whole diagnosis; ends without a newline."""
    parts = [Paragraph((f"ddpnb: {outcome_line(diagnosis)}", f"bold {_role(diagnosis)}"))]
    for finding in diagnosis.findings[:_FINDINGS]:
        parts += [Paragraph(), *paragraphs(finding)]
    if len(diagnosis.findings) > _FINDINGS:
        parts += [Paragraph(), Paragraph(_more(diagnosis.findings[_FINDINGS:]))]
    if diagnosis.notes:
        parts += [Paragraph(), Paragraph(("What is not known:", "bold"))]
        parts += [Paragraph(note, first="  - ", rest="    ") for note in diagnosis.notes]
    return output(*parts, colour=colour, width=width)


def paragraphs(finding: Finding) -> list[Paragraph]:
    """The card of a finding, for ``terminal.output``: summary, evidence, lines, hint, certainty, fix."""
    tag = (f"[{finding.code} {finding.name}]", finding.severity)
    parts = [Paragraph((finding.summary, "bold"), tag=tag)]
    parts += [Paragraph(evidence, first="  - ", rest="    ") for evidence in finding.evidence]
    if places := _places(finding, str):
        parts.append(Paragraph(f"where: {places}", first="  ", rest="    "))
    if finding.hint is not None:
        parts.append(Paragraph(f"Possible cause: {finding.hint}", first="  ", rest="    "))
    if certainty := how_certain(finding):
        parts.append(Paragraph(certainty, first="  ", rest="    "))
    if finding.remedy:
        parts.append(Paragraph(f"Fix: {finding.remedy}", first="  ", rest="    "))
    return parts


def show(diagnosis: Diagnosis, stream: TextIO | None = None) -> None:
    """Print the diagnosis, coloured if the stream is a terminal."""
    out: TextIO = sys.stderr if stream is None else stream
    print(text(diagnosis, colour=wants_colour(out)), file=out, flush=True)


def html(diagnosis: Diagnosis, *, headline: bool = True, below: Callable[[int, Finding], str] = lambda *_: "") -> str:
    """The diagnosis for a page that has the style sheet: see ``markup.standalone``.

    ``below``: gives what stands at the end of the card of a finding, as HTML; nothing where no program takes actions.
    """
    head = ""
    if headline:
        role = _role(diagnosis)
        head = f'<div class="{role}"><b>{markup.icon(_ICONS[role])} {markup.text(outcome_line(diagnosis))}</b></div>'
    cards = [finding_html(one, below(number, one)) for number, one in enumerate(diagnosis.findings)]
    return head + "".join(cards) + _notes(diagnosis.notes)


def _notes(notes: Sequence[str]) -> str:
    listed = "".join(f"<li>{markup.text(note)}</li>" for note in notes)
    return f'<div class="faint">What is not known:<ul>{listed}</ul></div>' if notes else ""


def how_certain(finding: Finding) -> str:
    """What is not proven of a finding, if anything."""
    return "" if finding.withdrawn else _CERTAINTY[finding.certainty]


def finding_html(finding: Finding, below: str = "") -> str:
    """The card of a finding; ``below``: what stands at its end, as HTML."""
    evidence = "".join(f"<li>{_linked(evidence, finding)}</li>" for evidence in finding.evidence)
    places = _places(finding, markup.place)
    where = f"<div>Where: {places}</div>" if places else ""
    certainty = f"<div>{how_certain(finding)}</div>" if how_certain(finding) else ""
    fix = f'<div class="fix"><b>Fix:</b> {_words(finding.remedy)}</div>' if finding.remedy else ""
    icon = f'<span class="{finding.severity}">{markup.icon(_ICONS[finding.severity])}</span>'
    return (
        f'<div class="card {finding.severity}" role="article" aria-label="{escape(finding.code)}">'
        f'<div class="summary">{icon} {_linked(finding.summary, finding)} '
        f'<span class="mono faint">{escape(finding.code)} {escape(finding.name)}</span></div>'
        f"<ul>{evidence}</ul>{where}{_hint(finding.hint)}{certainty}{fix}{below}</div>"
    )


def _linked(words: str, finding: Finding) -> str:
    """A sentence of a finding, with links where it names a line of a file in which the finding has a place."""
    files = sorted({site.file for _, site in finding.where if len(site.file) <= _PATH}, key=len, reverse=True)[:_FILES]
    if not files:
        return _words(words)
    named = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, files))}):(\d{{1,9}})\b")
    parts = named.split(words)  # a text, then a file, a line and a text, again and again
    found = [_words(parts[0])]
    for file, line, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        found += [markup.place(Site(file, int(line), "")), _words(rest)]
    return "".join(found)


def _words(text: str) -> str:
    """A sentence in which code stands between backticks."""
    parts = _CODE.split(text)  # a text, then code and a text, again and again
    return "".join(f"<code>{markup.text(one)}</code>" if n % 2 else markup.text(one) for n, one in enumerate(parts))


def _hint(hint: Hint | None) -> str:
    if hint is None:
        return ""
    return (
        f"<div>Possible cause: {markup.place(hint.site)}: {markup.text(hint.reason)} (inferred from the source)</div>"
    )


def _role(diagnosis: Diagnosis) -> str:
    return "ok" if diagnosis.outcome == "ok" else "error"


def outcome_line(diagnosis: Diagnosis) -> str:
    """The outcome in a line."""
    if diagnosis.reported and diagnosis.outcome == "ok":
        return "no problem is visible in these files"
    if diagnosis.reported and diagnosis.outcome == "interrupted":
        return "failed: these files do not show why"
    if not diagnosis.settled and diagnosis.outcome == "ok":
        warned = any(finding.unproven and not finding.withdrawn for finding in diagnosis.findings)
        return (
            "running: ranks have not moved for long, and may continue"
            if warned
            else "running: no problems found so far"
        )
    if diagnosis.outcome == "ok" and any(diagnosis.exit_codes.values()):
        return "ok: the command succeeded"
    if diagnosis.outcome == "ok" and None in diagnosis.exit_codes.values():
        return "ended: the exit status of some ranks is not known"
    seconds = diagnosis.timing.get("diagnosis_s")
    if diagnosis.outcome == "hang" and seconds:  # 0: not known
        return f"{HEADLINES['hang']}, detected {seconds:.1f} s after the last progress"
    return HEADLINES[diagnosis.outcome]


def _places(finding: Finding, shown: Callable[[Site], str]) -> str:
    """``rank 1: train.py:41; ranks 0, 2-7: train.py:44``"""
    places = phrases.by_place(finding.where)
    named = [f"{phrases.listed(ranks)}: {shown(site)}" for ranks, site in places[:_PLACES]]
    return "; ".join([*named, *([f"and {len(places) - _PLACES} more places"] if len(places) > _PLACES else [])])


def _more(findings: Sequence[Finding]) -> str:
    """The findings that are not written out, by name."""
    ranks: dict[str, set[int]] = {}
    for finding in findings:
        ranks.setdefault(f"{finding.code} {finding.name}", set()).update(finding.culprits or finding.concerned)
    names = ", ".join(f"{name} ({phrases.ranks(known)})" for name, known in ranks.items())
    return f"And {len(findings)} more: {names}."
