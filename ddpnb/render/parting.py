"""Where ranks part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ddpnb.errors import UsageError
from ddpnb.recording.facts.paths import partings as compared
from ddpnb.recording.findings import Finding
from ddpnb.recording.parting import Parting
from ddpnb.recording.recording import Recording
from ddpnb.render import as_html, markup
from ddpnb.render.document import Block, Group, Icon, Items, Line, Paragraph, Source, Span
from ddpnb.render.places import FileNames, files_of
from ddpnb.render.shown import Shown
from ddpnb.render.sides import CONTEXT, Side, harmless, lines, role, sides, title, unknown, values, where

_FEW = 3  # partings that are written out in full
_NOTEBOOK = 4  # lines of the source before and after, where there is room
_NOWHERE = "The ranks do not part, as far as their paths are recorded."
_CALL = re.compile(r"(\w{1,80})(?:\([^()]*\))?( #\d{1,18} of .{1,200}?)(?: at |\Z)")
_DIFFERED = "Decided differently before; that may be why:"


class Partings(Shown, tuple[Parting, ...]):  # noqa: SLOT001 (it has notes)
    """Where ranks part, as ``partings()`` returns it, the first one first; it shows itself as text and in a notebook.

    ``notes`` are what is not known of the paths, in sentences.

    Example:
        >>> ddpnb.partings(recording)[0].site.line
        33
    """

    notes: tuple[str, ...] = ()
    _label = "where ranks part"

    def _repr_html_(self) -> str:
        return markup.standalone(as_html.html(*self._document(_NOTEBOOK)), self._label)

    def _document(self, context: int = CONTEXT) -> list[Block]:
        shown: list[Block] = []
        for parting in self[:_FEW]:
            shown += [*([Paragraph()] if shown else []), document(parting, context)]
        more = [f"And {len(self) - _FEW} more."] if len(self) > _FEW else []
        return [*shown, *(Paragraph(note, kind="faint") for note in (*more, *self.notes))]


def partings(recording: Recording) -> Partings:
    """Where the ways of the ranks part: the decision, the way of each side, and what they called after it.

    Ranks record their paths on Python 3.12 and later.

    Args:
        recording: from ``World.snapshot()``, ``Run.recording`` or ``ddpnb.load()``.

    Returns:
        The partings, the first one first; none if the ranks made the same collectives as far as their paths are recorded.

    Raises:
        UsageError: it is not a Recording.

    Example:
        >>> ddpnb.partings(ddpnb.load("hang.ddpnb"))
    """
    if not isinstance(recording, Recording):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("partings() takes a Recording.", "world.partings() and run.partings are for live ranks.")
    found = Partings(one.quoted(recording.sources, recording.edited) for one in compared.partings(recording))
    known = any(record.path is not None for record in recording.ranks.values())
    found.notes = (*([_NOWHERE] if known and not found else []), *unknown(recording))
    return found


def first_shown(findings: Sequence[Finding]) -> list[int]:
    """The numbers of the findings whose ranks part where those of no finding before it do: each parting is shown once."""
    before: list[Parting] = []
    found: list[int] = []
    for number, finding in enumerate(findings):
        if finding.parting is not None and finding.parting not in before:
            before.append(finding.parting)
            found.append(number)
    return found


def of_finding(finding: Finding, parting: Parting) -> Parting:
    """Its parting without the calls that its evidence names."""
    evidence = " ".join((*finding.evidence, ""))
    call = finding.collective
    differs = f" #{call.seq} of {call.group} " if finding.type.mismatch and call is not None else "\n"

    def new(one: str) -> bool:
        call = _CALL.match(one)
        named = call is not None and f"{call[1]}{call[2]} " in evidence
        return not named and differs not in f"{one} "

    return replace(parting, ways=tuple(replace(way, calls=tuple(filter(new, way.calls))) for way in parting.ways))


def document(
    parting: Parting, context: int = CONTEXT, said: FileNames | None = None, shown: Sequence[Line | None] | None = None
) -> Group:
    """Where, the source with ranks in its margin, the sides, and why.

    Args:
        parting: that is shown.
        context: lines of the source before and after.
        said: names of files, as the card has them.
        shown: the lines, where they are not those of the parting alone.
    """
    said = said or FileNames(files_of(parting))

    def side(one: Side) -> Block | list[Block]:
        who = Span(
            f"{one.who[0].upper()}{one.who[1:]}" if one.odd else one.who, role(parting, odd=one.odd), strong=True
        )
        left = [Icon("stop", "error"), who, " went another way"] if one.odd else [who]
        line = Paragraph(*left, *([": ", *said(one.words)] if one.words else []))
        return [line, Paragraph("only here: ", *said(one.calls))] if one.calls else line

    head = Paragraph(Span(f"{title(parting)}:", strong=True), " ", *said(where(parting)))
    quoted = (
        lines(parting, context) if shown is None else shown
    )  # none of a package, whose text is not in the recording
    source = [Source(parting.site.file, quoted, "the source where ranks part")] if any(quoted) else []
    said.lines(parting.site.file, quoted)
    every = [one for one in sides(parting) if one.words or one.calls or one.odd]
    went = Items([*map(side, every), *(Paragraph(*said(value)) for value in values(parting))], marked=False)
    blocks: list[Block] = [head, *source, went]
    if before := harmless(parting):
        blocks.append(Group((Paragraph(_DIFFERED), Items([Paragraph(*said(one)) for one in before]))))
    return Group(blocks, "parting")
