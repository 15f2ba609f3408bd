"""The diagnosis: a card per finding, as text and as HTML. Everything from a rank is escaped."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from typing import TextIO

from ddpnb.model import phrases
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
CERTAINTY = {
    "proven": "",
    "timed": "Not proven: no progress for as long as patience, or the time-out, allows.",
    "likely": "Likely, not proven: a part of this is inferred.",
}
_FINDINGS = 16  # written out in full as text
_PLACES = 8


def text(diagnosis: Diagnosis, *, colour: bool = False, width: int | None = None) -> str:
    """The whole diagnosis; ends without a newline."""
    parts = [Paragraph((f"ddpnb: {_headline(diagnosis)}", f"bold {_role(diagnosis)}"))]
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
    places = [f"rank {rank}: {site}" for rank, site in finding.where[:_PLACES]]
    if places:
        parts.append(Paragraph(f"where: {', '.join(places)}{_others(finding)}", first="  ", rest="    "))
    if finding.hint is not None:
        parts.append(Paragraph(f"Possible cause: {finding.hint}", first="  ", rest="    "))
    if CERTAINTY[finding.certainty]:
        parts.append(Paragraph(CERTAINTY[finding.certainty], first="  ", rest="    "))
    if finding.remedy:
        parts.append(Paragraph(f"Fix: {finding.remedy}", first="  ", rest="    "))
    return parts


def show(diagnosis: Diagnosis, stream: TextIO | None = None) -> None:
    """Print the diagnosis, coloured if the stream is a terminal."""
    out: TextIO = sys.stderr if stream is None else stream
    print(text(diagnosis, colour=wants_colour(out)), file=out, flush=True)


def html(diagnosis: Diagnosis, *, headline: bool = True) -> str:
    """The diagnosis for a page that has the style sheet: see ``markup.standalone``."""
    head = ""
    if headline:
        role = _role(diagnosis)
        head = f'<div class="{role}"><b>{markup.icon(_ICONS[role])} {markup.text(_headline(diagnosis))}</b></div>'
    return head + "".join(map(finding_html, diagnosis.findings)) + _notes(diagnosis.notes)


def _notes(notes: Sequence[str]) -> str:
    listed = "".join(f"<li>{markup.text(note)}</li>" for note in notes)
    return f'<div class="faint">What is not known:<ul>{listed}</ul></div>' if notes else ""


def finding_html(finding: Finding) -> str:
    """The card of a finding."""
    evidence = "".join(f"<li>{markup.text(evidence)}</li>" for evidence in finding.evidence)
    places = ", ".join(f"rank {rank}: {markup.place(site)}" for rank, site in finding.where[:_PLACES])
    where = f"<div>Where: {places}{_others(finding)}</div>" if places else ""
    certainty = f"<div>{CERTAINTY[finding.certainty]}</div>" if CERTAINTY[finding.certainty] else ""
    fix = f'<div class="fix"><b>Fix:</b> {markup.text(finding.remedy)}</div>' if finding.remedy else ""
    icon = f'<span class="{finding.severity}">{markup.icon(_ICONS[finding.severity])}</span>'
    return (
        f'<div class="card {finding.severity}" role="article" aria-label="{escape(finding.code)}">'
        f'<div class="summary">{icon} {markup.text(finding.summary)} '
        f'<span class="mono faint">{escape(finding.code)} {escape(finding.name)}</span></div>'
        f"<ul>{evidence}</ul>{where}{_hint(finding.hint)}{certainty}{fix}</div>"
    )


def _hint(hint: Hint | None) -> str:
    if hint is None:
        return ""
    return (
        f"<div>Possible cause: {markup.place(hint.site)}: {markup.text(hint.reason)} (inferred from the source)</div>"
    )


def _role(diagnosis: Diagnosis) -> str:
    return "ok" if diagnosis.outcome == "ok" else "error"


def _headline(diagnosis: Diagnosis) -> str:
    if diagnosis.reported and diagnosis.outcome == "ok":
        return "no problem is visible in these files"
    if diagnosis.reported and diagnosis.outcome == "interrupted":
        return "failed: these files do not show why"
    if not diagnosis.settled and diagnosis.outcome == "ok":
        return "running: no problems found so far"
    if diagnosis.outcome == "ok" and None in diagnosis.exit_codes.values():
        return "ended: the exit status of some ranks is not known"
    seconds = diagnosis.timing.get("diagnosis_s")
    if diagnosis.outcome == "hang" and seconds:  # 0: not known
        return f"{HEADLINES['hang']}, detected {seconds:.1f} s after the last progress"
    return HEADLINES[diagnosis.outcome]


def _others(finding: Finding) -> str:
    return f", and {len(finding.where) - _PLACES} more" if len(finding.where) > _PLACES else ""


def _more(findings: Sequence[Finding]) -> str:
    """The findings that are not written out, by name."""
    ranks: dict[str, set[int]] = {}
    for finding in findings:
        ranks.setdefault(f"{finding.code} {finding.name}", set()).update(finding.culprits or finding.concerned)
    names = ", ".join(f"{name} ({phrases.ranks(known)})" for name, known in ranks.items())
    return f"And {len(findings)} more: {names}."
