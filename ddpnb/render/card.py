"""The diagnosis: a card per finding, as text, as HTML and as Markdown, which has no secrets, names of users and machines, and homes."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

from ddpnb.recording import phrases
from ddpnb.recording.findings import Diagnosis, Finding
from ddpnb.recording.secrets import Secrets
from ddpnb.render import as_html, as_markdown, as_text
from ddpnb.render import parting as partings
from ddpnb.render.document import Block, Drawn, Group, Icon, Items, Paragraph, Span, Title
from ddpnb.render.identities import Identities
from ddpnb.render.places import evidence, file_names, places
from ddpnb.render.terminal import wants_colour

HEADLINES = {
    "ok": "ok: the script completed on all ranks",
    "hang": "hang: the ranks cannot continue",
    "crash": "crash: a rank failed",
    "divergence": "divergence: completed, but the ranks diverged",
    "interrupted": "interrupted: the script was still running",
}
_CERTAINTY = {
    "proven": "",
    "timed": "Not proven: no progress for as long as patience, or the time-out, allows.",
    "likely": "Likely, not proven: a part of this is inferred.",
}
ENDED_OUTSIDE = "What the ranks would have done: "
_SET_UP = "DDP1"  # codes of the environment and the start
_FINDINGS = 16  # written out in full


def text(diagnosis: Diagnosis, *, colour: bool = False, width: int | None = None, parted: bool = True) -> str:
    """The whole diagnosis; ends without a newline. ``parted``: as for ``blocks``."""
    return as_text.text(*blocks(diagnosis, parted=parted), colour=colour, width=width)


def html(
    diagnosis: Diagnosis,
    *,
    headline: bool = True,
    below: Callable[[int, Finding], str] = lambda *_: "",
    parted: bool = True,
) -> str:
    """The diagnosis for a page that has the style sheet: see ``markup.standalone``, and ``blocks``."""
    return as_html.html(*blocks(diagnosis, headline=headline, below=below, parted=parted))


def blocks(
    diagnosis: Diagnosis,
    *,
    headline: bool = True,
    below: Callable[[int, Finding], str] = lambda *_: "",
    parted: bool = True,
) -> list[Block]:
    """The outcome, a card for each of the first findings, and what is not known.

    Args:
        diagnosis: what is shown.
        headline: begin with the outcome.
        below: gives what stands at the end of the card of a finding, as HTML; nothing where no program takes actions.
        parted: with where the ranks part; without it where that is shown beside the cards.
    """
    role = "ok" if diagnosis.outcome == "ok" else "error"
    line = Span(outcome_line(diagnosis), role, strong=True)
    new = partings.first_shown(diagnosis.findings) if parted else ()
    head = Paragraph(Icon(as_html.ICONS[role], role), Drawn("", "ddpnb: "), line)
    shown: list[Block] = [Group((head,)), Paragraph()] if headline else []
    for number, finding in enumerate(diagnosis.findings[:_FINDINGS]):
        shown += [document(finding, parted=number in new, below=below(number, finding)), Paragraph()]
    if len(diagnosis.findings) > _FINDINGS:
        shown += [Paragraph(_more(diagnosis.findings[_FINDINGS:])), Paragraph()]
    return [*shown, *_order(diagnosis), *_notes(diagnosis), *_answer(diagnosis)]


def _order(diagnosis: Diagnosis) -> list[Block]:
    title = Paragraph(Span("Order of events:", strong=True))
    events = Items([Paragraph(one) for one in diagnosis.order])
    return [Group((title, events)), Paragraph()] if diagnosis.order else []


def _answer(diagnosis: Diagnosis) -> list[Block]:
    title = Paragraph(Span("To post as an answer:", strong=True))
    return [Paragraph(), Group((title, Paragraph(diagnosis.answer)))] if diagnosis.answer else []


def _notes(diagnosis: Diagnosis) -> list[Block]:
    title = Paragraph(Span("What is not known:", strong=True))
    return [Group((title, Items(list(map(Paragraph, diagnosis.notes)))), "faint")] if diagnosis.notes else []


def document(finding: Finding, *, parted: bool = True, below: str = "") -> Group:
    """The card of a finding: summary, where ranks part, evidence, lines, hint, certainty, fix.

    Args:
        finding: that is shown.
        parted: with where its ranks part.
        below: what stands at its end in a page, as HTML.
    """
    said = file_names(finding)
    shown: list[Block] = [Title(said(finding.summary), f"{finding.code} {finding.name}", finding.severity)]
    if parted and finding.parting is not None:
        shown.append(partings.document(partings.of_finding(finding, finding.parting), said=said))
    shown.append(Items([Paragraph(*said(one)) for one in evidence(finding)]))
    if found := "; ".join(places(finding)):
        shown.append(Paragraph(*said(found), label="where"))
    if finding.hint is not None:
        shown.append(Paragraph(*said(str(finding.hint)), label="Possible cause"))
    if certainty := "" if finding.withdrawn else _CERTAINTY[finding.certainty]:
        shown.append(Paragraph(certainty))
    if finding.remedy:
        shown.append(Paragraph(Span("Fix:", strong=True), " ", *said(finding.remedy), kind="fix"))
    return Group((*shown, Drawn(below)), f"card {finding.severity}", finding.code)


def finding_html(finding: Finding) -> str:
    """The card of a finding, for a page that has the style sheet."""
    return as_html.html(document(finding))


def show(diagnosis: Diagnosis, stream: TextIO | None = None) -> None:
    """Print the diagnosis, coloured if the stream is a terminal."""
    out: TextIO = sys.stderr if stream is None else stream
    print(text(diagnosis, colour=wants_colour(out)), file=out, flush=True)


def markdown(diagnosis: Diagnosis, findings: Sequence[Finding] | None = None) -> str:
    """The findings as Markdown, masked as the bundle of ``ddpnb doctor`` is.

    Args:
        diagnosis: of a run.
        findings: those to report; None: all.
    """
    chosen = diagnosis.findings if findings is None else findings
    new = partings.first_shown(chosen)
    shown: list[Block] = [document(finding, parted=number in new) for number, finding in enumerate(chosen)]
    shown += _notes(diagnosis)
    head = f"**ddpnb: {diagnosis.outcome}** on {diagnosis.world_size} ranks"
    return masked("\n\n".join(filter(None, (head, as_markdown.markdown(*shown)))))


def masked(words: str) -> str:
    """A text for others: without secrets, names of users and machines, and homes."""
    users = [os.environ[name] for name in ("USER", "LOGNAME") if os.environ.get(name)]
    identities = Identities([platform.node()], users, [os.path.expanduser("~")])
    return identities.mask(Secrets(os.environ).mask(words))


def outcome_line(diagnosis: Diagnosis) -> str:
    """The outcome in a line."""
    if diagnosis.reported and diagnosis.outcome == "ok":
        return "no problem is visible in these files"
    if diagnosis.reported and diagnosis.outcome == "interrupted":
        ended = next((note for note in diagnosis.notes if note.startswith(ENDED_OUTSIDE)), "")
        return f"interrupted: {ended.removeprefix(ENDED_OUTSIDE)}" if ended else "failed: these files do not show why"
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
