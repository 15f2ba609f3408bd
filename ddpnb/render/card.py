"""The diagnosis: a card per finding, as text and as HTML. Everything from a rank is escaped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, TextIO

from ddpnb.model import phrases
from ddpnb.model.findings import Diagnosis, Finding, Hint
from ddpnb.render import markup
from ddpnb.render import parting as partings
from ddpnb.render.places import FileNames, evidence, file_names, places
from ddpnb.render.terminal import Paragraph, output, wants_colour

if TYPE_CHECKING:
    from rich.console import RenderableType

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
_SET_UP = "DDP1"  # codes of the environment and the start
_FINDINGS = 16  # written out in full as text


def text(diagnosis: Diagnosis, *, colour: bool = False, width: int | None = None, parted: bool = True) -> str:
    """The whole diagnosis; ends without a newline. ``parted``: as for ``html``."""
    new = partings.first_shown(diagnosis.findings) if parted else ()
    parts: list[RenderableType] = [Paragraph((f"ddpnb: {outcome_line(diagnosis)}", f"bold {_role(diagnosis)}"))]
    for number, finding in enumerate(diagnosis.findings[:_FINDINGS]):
        parts += [Paragraph(), *paragraphs(finding, parted=number in new)]
    if len(diagnosis.findings) > _FINDINGS:
        parts += [Paragraph(), Paragraph(_more(diagnosis.findings[_FINDINGS:]))]
    if diagnosis.notes:
        parts += [Paragraph(), Paragraph(("What is not known:", "bold"))]
        parts += [Paragraph(note, first="  - ", rest="    ") for note in diagnosis.notes]
    return output(*parts, colour=colour, width=width)


def paragraphs(finding: Finding, *, parted: bool = True) -> list[RenderableType]:
    """The card of a finding, for ``terminal.output``: summary, where ranks part, evidence, lines, hint, certainty, fix.

    ``parted``: with where its ranks part.
    """
    tag, named = (f"[{finding.code} {finding.name}]", finding.severity), file_names(finding)
    parts: list[RenderableType] = [Paragraph((named(finding.summary), "bold"), tag=tag)]
    if parted and finding.parting is not None:
        parts += partings.paragraphs(partings.of_finding(finding, finding.parting), named=named)
    parts += [Paragraph(named(one), first="  - ", rest="    ") for one in evidence(finding)]
    if found := "; ".join(places(finding, lambda site: named(str(site)))):
        parts.append(Paragraph(f"where: {found}", first="  ", rest="    "))
    if finding.hint is not None:
        parts.append(Paragraph(f"Possible cause: {named(str(finding.hint))}", first="  ", rest="    "))
    if certainty := how_certain(finding):
        parts.append(Paragraph(certainty, first="  ", rest="    "))
    if finding.remedy:
        parts.append(Paragraph(f"Fix: {named(finding.remedy)}", first="  ", rest="    "))
    return parts


def show(diagnosis: Diagnosis, stream: TextIO | None = None) -> None:
    """Print the diagnosis, coloured if the stream is a terminal."""
    out: TextIO = sys.stderr if stream is None else stream
    print(text(diagnosis, colour=wants_colour(out)), file=out, flush=True)


def html(
    diagnosis: Diagnosis,
    *,
    headline: bool = True,
    below: Callable[[int, Finding], str] = lambda *_: "",
    parted: bool = True,
) -> str:
    """The diagnosis for a page that has the style sheet: see ``markup.standalone``.

    Args:
        diagnosis: what is shown.
        headline: begin with the outcome.
        below: gives what stands at the end of the card of a finding, as HTML; nothing where no program takes actions.
        parted: with where the ranks part; without it where that is shown beside the cards.
    """
    head = ""
    if headline:
        role = _role(diagnosis)
        head = f'<div class="{role}"><b>{markup.icon(_ICONS[role])} {markup.text(outcome_line(diagnosis))}</b></div>'
    new = partings.first_shown(diagnosis.findings) if parted else ()
    cards = [
        finding_html(one, below(number, one), parted=number in new) for number, one in enumerate(diagnosis.findings)
    ]
    return head + "".join(cards) + _notes(diagnosis.notes)


def _notes(notes: Sequence[str]) -> str:
    listed = "".join(f"<li>{markup.text(note)}</li>" for note in notes)
    return f'<div class="faint">What is not known:<ul>{listed}</ul></div>' if notes else ""


def how_certain(finding: Finding) -> str:
    """What is not proven of a finding, if anything."""
    return "" if finding.withdrawn else _CERTAINTY[finding.certainty]


def finding_html(finding: Finding, below: str = "", *, parted: bool = True) -> str:
    """The card of a finding; ``below``: what stands at its end, as HTML; ``parted``: with where its ranks part."""
    named = file_names(finding)
    summary = _linked(finding.summary, finding, named)
    shown = finding.parting if parted else None
    parting = partings.html(partings.of_finding(finding, shown), named=named) if shown is not None else ""
    listed = "".join(f"<li>{_linked(one, finding, named)}</li>" for one in evidence(finding))
    found = "; ".join(places(finding, lambda site: markup.place(site, named.label(site))))
    where = f"<div>Where: {found}</div>" if found else ""
    hint = _hint(finding.hint, named)
    certainty = f"<div>{how_certain(finding)}</div>" if how_certain(finding) else ""
    fix = f'<div class="fix"><b>Fix:</b> {markup.sentence(finding.remedy)}</div>' if finding.remedy else ""
    icon = f'<span class="{finding.severity}">{markup.icon(_ICONS[finding.severity])}</span>'
    return (
        f'<div class="card {finding.severity}" role="article" aria-label="{escape(finding.code)}">'
        f'<div class="summary">{icon} {summary} '
        f'<span class="mono faint">{escape(finding.code)} {escape(finding.name)}</span></div>'
        f"{parting}<ul>{listed}</ul>{where}{hint}{certainty}{fix}{below}</div>"
    )


def _linked(words: str, finding: Finding, named: FileNames) -> str:
    """A sentence of a finding, with links where it names a line of a file in which the finding has a place."""
    return markup.sentence(words, (site.file for _, site in finding.where), named.label)


def _hint(hint: Hint | None, named: FileNames) -> str:
    if hint is None:
        return ""
    place = markup.place(hint.site, named.label(hint.site))
    return f"<div>Possible cause: {place}: {markup.text(hint.reason)} (inferred from the source)</div>"


def _role(diagnosis: Diagnosis) -> str:
    return "ok" if diagnosis.outcome == "ok" else "error"


def outcome_line(diagnosis: Diagnosis) -> str:
    """The outcome in a line."""
    if diagnosis.reported and diagnosis.outcome == "ok":
        return "no problem is visible in these files"
    if diagnosis.reported and diagnosis.outcome == "interrupted":
        return "failed: these files do not show why"
    if not diagnosis.settled and diagnosis.outcome == "ok":
        shown = [finding for finding in diagnosis.findings if not finding.withdrawn and finding.severity != "note"]
        if any(finding.unproven for finding in shown):
            return "running: ranks have not moved for long, and may continue"
        return f"running: no {'errors' if shown else 'problems'} found so far"
    if diagnosis.outcome == "ok" and any(diagnosis.exit_codes.values()):
        return "ok: the command succeeded"
    if diagnosis.outcome == "ok" and None in diagnosis.exit_codes.values():
        return "ended: the exit status of some ranks is not known"
    if diagnosis.outcome == "divergence" and all(one.code.startswith(_SET_UP) for one in diagnosis.errors):
        return "divergence: completed, but the ranks were set up differently"
    seconds = diagnosis.timing.get("diagnosis_s")
    if diagnosis.outcome == "hang" and seconds:  # 0: not known
        return f"{HEADLINES['hang']}, detected {seconds:.1f} s after the last progress"
    return HEADLINES[diagnosis.outcome]


def _more(findings: Sequence[Finding]) -> str:
    """The findings that are not written out, by name."""
    ranks: dict[str, set[int]] = {}
    for finding in findings:
        ranks.setdefault(f"{finding.code} {finding.name}", set()).update(finding.culprits or finding.concerned)
    names = ", ".join(f"{name} ({phrases.ranks(known)})" for name, known in ranks.items())
    return f"And {len(findings)} more: {names}."
