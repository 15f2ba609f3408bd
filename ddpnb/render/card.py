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
from ddpnb.render.document import Block, Drawn, Group, Icon, Items, Paragraph, Source, Span, Title
from ddpnb.render.excerpt import excerpt
from ddpnb.render.identities import Identities
from ddpnb.render.places import FileNames, evidence, file_names, marks, open_question, places
from ddpnb.render.sides import lines
from ddpnb.render.terminal import wants_colour
from ddpnb.render.titles import title

HEADLINES = {
    "ok": "ok: the script completed on all ranks",
    "hang": "hang: the ranks cannot continue",
    "crash": "crash: a rank failed",
    "divergence": "divergence: completed, but with errors",
    "interrupted": "interrupted: the script was still running",
}
_CERTAINTY = {
    "proven": "",
    "timed": "Not proven: no progress for as long as patience, or the time-out, allows.",
    "likely": "Likely, not proven: a part of this is inferred.",
}
_DIVERGED = {"DDP405", "DDP406", "DDP410", "DDP417", "DDP601"}  # of what they name, the values differ between ranks
# What is known of a divergence whose errors all have such a code: the values of the ranks may be equal.
_DIVERGENCES = {
    "DDP1": "divergence: completed, but the ranks were set up differently",
    "DDP316": "divergence: completed, but a collective was not waited for in time",
}
_FINDINGS = 16  # written out in full
_FILES = 3  # whose lines are shown beside where the ranks part
_AROUND = {1: 2, 2: 1, 3: 1}  # lines before and after, by how many lines are places


def text(diagnosis: Diagnosis, *, colour: bool = False, width: int | None = None) -> str:
    """The whole diagnosis; ends without a newline."""
    return as_text.text(*blocks(diagnosis), colour=colour, width=width)


def html(
    diagnosis: Diagnosis,
    *,
    headline: bool = True,
    below: Callable[[int, Finding], str] = lambda *_: "",
) -> str:
    """The diagnosis for a page that has the style sheet: see ``markup.standalone``, and ``blocks``."""
    return as_html.html(*blocks(diagnosis, headline=headline, below=below))


def blocks(
    diagnosis: Diagnosis,
    *,
    headline: bool = True,
    below: Callable[[int, Finding], str] = lambda *_: "",
) -> list[Block]:
    """The outcome, a card for each of the first findings, and what is not known.

    Args:
        diagnosis: what is shown.
        headline: begin with the outcome.
        below: gives what stands at the end of the card of a finding, as HTML; nothing where no program takes actions.
    """
    role = "ok" if diagnosis.outcome == "ok" else "error"
    line = Span(outcome_line(diagnosis), role, strong=True)
    new = partings.first_shown(diagnosis.findings)
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
    """The card of a finding: summary, where ranks part, the lines, evidence, fix, and last what is not sure.

    Args:
        finding: that is shown.
        parted: with where its ranks part.
        below: what stands at its end in a page, as HTML.
    """
    said = file_names(finding)
    head = title(finding.summary)
    shown: list[Block] = [Title(said.title(head), f"{finding.code} {finding.name}", finding.severity)]
    source, known = _source(finding, said, parted=parted)
    sentences = (*((finding.summary,) if head != finding.summary else ()), *evidence(finding))
    shown += [*source, Items([Paragraph(*said(one)) for one in sentences])]
    if found := "; ".join(places(finding, known)):
        shown.append(Paragraph(*said(found), label="where"))
    if finding.hint is not None:
        shown.append(Paragraph(*said(str(finding.hint)), label="Possible cause"))
    if finding.remedy:
        shown.append(Paragraph(Span("Fix:", strong=True), " ", *said(finding.remedy), kind="fix"))
    certainty = "" if finding.withdrawn else _CERTAINTY[finding.certainty]
    if unsure := " ".join(filter(None, (certainty, *open_question(finding)))):
        shown.append(Paragraph(unsure))
    return Group((*shown, Drawn(below)), f"card {finding.severity}", finding.code)


def _source(finding: Finding, said: FileNames, *, parted: bool) -> tuple[list[Block], set[tuple[str, int]]]:
    """The lines of its places with ranks in their margin, and which places need not be named any more."""
    by_file, texts, parting = marks(finding), dict(finding.source), finding.parting
    shown: list[Block] = []
    known: set[tuple[str, int]] = set()
    if parting is not None:
        known = {(site.file, site.line) for site in (parting.site, *(way.to for way in parting.ways))}
    if parting is not None and parted:
        file = parting.site.file
        quoted = lines(parting, also=by_file.get(file, {}), known=texts.get(file, ()))
        known |= {(file, line) for line in (by_file.pop(file, {}) if quoted else ())}
        shown.append(partings.document(partings.of_finding(finding, parting), said=said, shown=quoted))
    for file, own in list(by_file.items())[:_FILES]:
        context = _AROUND.get(len(own), 0)
        quoted = excerpt(own, dict(texts[file]), dict.fromkeys(own, context))
        functions = {site.function for _, site in finding.where if site.file == file and site.line in own}
        head = said.heading(file, functions.pop() if len(functions) == 1 else "", min(own))
        said.lines(file, quoted)
        shown.append(Group((Paragraph(*head), Source(file, quoted, f"lines of {os.path.basename(file)}")), "parting"))
        known |= {(file, line) for line in own}
    return shown, known


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
        ended = f"interrupted: {diagnosis.outside}; no rank is known to have failed."
        return ended if diagnosis.outside else "failed: these files do not show why"
    if not diagnosis.settled and diagnosis.outcome == "ok":
        shown = [finding for finding in diagnosis.findings if not finding.withdrawn and finding.severity != "note"]
        if any(finding.unproven for finding in shown):
            return "running: ranks have not moved for long, and may continue"
        return f"running: no {'errors' if shown else 'problems'} found so far"
    if diagnosis.outcome == "ok" and any(diagnosis.exit_codes.values()):
        return "ok: the command succeeded"
    if diagnosis.outcome == "ok" and None in diagnosis.exit_codes.values():
        return "ended: the exit status of some ranks is not known"
    if diagnosis.outcome == "divergence":
        codes = {one.code for one in diagnosis.errors}
        if codes & _DIVERGED:
            return "divergence: completed, but the ranks diverged"
        known = (words for code, words in _DIVERGENCES.items() if codes and all(one.startswith(code) for one in codes))
        return next(known, HEADLINES["divergence"])
    statuses = set(diagnosis.exit_codes.values())
    if diagnosis.outcome == "crash" and statuses == {0} and not diagnosis.findings:
        return "crash: the command failed, after all ranks had succeeded"
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
