"""Where a rank left the way of the others: the line that it alone ran, or the decision after which it did not run theirs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

from ddpnb.diagnosis.execution.parts import Executed, Part, latest, place
from ddpnb.diagnosis.once import once
from ddpnb.model.calls import Call, CallState, Site
from ddpnb.model.collectives import call_in
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.source.paths import path_to
from ddpnb.source.ways import decided_against, jump_at, loop_before

Kind = Literal["jump", "branch", "loop", "lines"]
MOST = 8  # ranks of a side that are compared
_RARE = 3  # windows
_MOST_INSIDE = 3


@dataclass(frozen=True, slots=True)
class Departure:
    """How one rank left the way of the others.

    ``jump``: it alone ran the ``continue``, ``break``, ``return``, ``raise`` or handler at ``site``; ``branch``, ``loop``: it
    ran the header at ``site``, but then not ``missed`` in its body, or it alone ran ``after``, behind the loop; ``lines``: it
    alone ran ``site``, and no more is known.
    ``alone``: the lines that it alone ran in the part of the run that begins ``since`` there, in their order, for ``lines`` from
    ``site`` on; for a ``loop`` the rarest line that it alone ran after the loop began. ``inside``: what decided it in functions
    that the header calls, such as the generator that a loop reads: (a header that it ran, the line behind it that it did not run).
    """

    rank: int
    kind: Kind
    site: Site
    word: str = ""
    missed: Site | None = None
    after: Site | None = None
    alone: tuple[Site, ...] = ()
    since: str = ""
    inside: tuple[tuple[Site, Site], ...] = ()

    @property
    def last(self) -> Site:
        """The line that shows it."""
        return self.after or self.site

    @property
    def further(self) -> tuple[Site, ...]:
        """Other lines that explain it: what changed a loop before it ended, where lines that the rank alone ran led to."""
        inside = tuple(header for header, _ in self.inside)
        return inside + {"loop": self.alone, "lines": self.alone[-1:]}.get(self.kind, ())

    @property
    def skips(self) -> bool:
        """Whether it went past a line of the others, and did not just leave a loop."""
        return self.kind == "branch" or (self.kind == "jump" and self.word != "break")

    @property
    def leaves_loop(self) -> bool:
        """Whether it left a loop by its header or a ``break``."""
        return self.kind == "loop" or self.word == "break"


@once
def departures(
    recording: Recording, ranks: tuple[int, ...], others: tuple[int, ...], call: Call
) -> tuple[Departure, ...]:
    """Where ranks left the way by which others came to the calls that they are in now; of many ranks the first few.

    Args:
        recording: what is known.
        ranks: the ranks that left.
        others: ranks that did not.
        call: the collective that those, or all, are in.
    """
    mine, theirs = ([rank for rank in side if rank in recording.ranks][:MOST] for side in (ranks, others))
    now = {rank: current(recording.ranks[rank], call) for rank in (*mine, *theirs)}
    begun = {rank: recording.ranks[rank].begun_before(own) if own is not None else None for rank, own in now.items()}
    part = latest(recording, begun)
    if part is None or not mine or not theirs:
        return ()
    path = max((_path(recording.ranks[rank], now[rank]) for rank in theirs), key=len)
    ways = (departure(part, recording.sources, rank, theirs, path) for rank in mine)
    return tuple(way for way in ways if way is not None and not (call.is_p2p and _is_role(part.ranks[way.rank], way)))


def _is_role(mine: Executed, way: Departure) -> bool:
    """Whether the rank went this way from the beginning, as a stage of a pipeline does its own part."""
    return way.missed is not None and place(way.missed) not in mine.run and place(way.site) in mine.before


def current(record: RankRecord, call: Call) -> Call | None:
    """The call of a rank in this collective; else its last one, if it is still in it."""
    own = call_in(record, call.group, call.seq)
    last = record.calls[-1] if record.calls and record.ending is None else None
    return own or (last if last is not None and last.state is not CallState.COMPLETED else None)


def _path(record: RankRecord, call: Call | None) -> tuple[Site, ...]:
    """The user's frames down to a call, or to where the rank is."""
    if call is not None:
        return path_to(record, call)
    stack = record.main_stack
    return tuple(frame.site for frame in stack.user_frames) if stack is not None else ()


def departure(
    part: Part, sources: Mapping[str, str], rank: int, others: Collection[int], path: Sequence[Site] = ()
) -> Departure | None:
    """Where a rank left the way of others.

    Lines that it alone ran count if they are new: what a rank does regularly without harm, such as printing, explains
    nothing. Where a skip lies further back, the run as a whole is compared: rare lines before habitual ones, the latest first.

    Args:
        part: the part of the run in which the ranks part.
        sources: the text of the files.
        rank: the rank that left.
        others: ranks that did not.
        path: the lines by which those came to where they are, outermost first.
    """
    mine, theirs = part.ranks[rank], [part.ranks[other] for other in others]
    alone = _alone(mine, theirs)
    decision = _untaken(sources, mine, theirs, path) or _loop_left(sources, alone, path)
    branched = decision is not None and decision.kind == "branch"
    on_path = {(site.file, site.function) for site in path}
    shared = {(line.site.file, line.site.function) for other in theirs for line in other.run.values()}

    def jump(lines: Iterable[Site], where: Collection[tuple[str, str]]) -> tuple[Site, str] | None:
        """The first of these lines that leaves the usual way, in one of these functions; of an exception its handler."""
        words = [(site, _jump(sources, site)) for site in lines if (site.file, site.function) in where]
        found = [(site, word) for site, word in words if word]
        handlers = [(site, word) for site, word in found if word == "except"]
        return next(iter(handlers if found and found[0][1] == "raise" and handlers else found), None)

    entry = next((site for site in alone if (site.file, site.function) in shared), None)
    # Without a path, a jump in a function that was called from lines that the rank alone ran is a consequence of them.
    of_entry = {(entry.file, entry.function)} if entry is not None and not path else shared
    here = jump(alone, on_path) or (None if branched else jump(alone, of_entry))
    # What comes after the decision is a consequence of it.
    order = {at: number for number, at in enumerate(mine.lines)}
    if here is not None and (decision is None or order[place(here[0])] < order.get(place(decision.last), 0)):
        return Departure(rank, "jump", *here, alone=alone, since=part.since)
    if path and not branched:
        rare = _rare(mine, theirs)
        there = jump(rare, on_path) or jump(rare, shared)
        if there is not None:
            return Departure(rank, "jump", *there)
    if decision is not None:
        earlier = () if branched else _since_loop(mine, theirs, decision.site)
        return replace(decision, rank=rank, alone=earlier, inside=_inside(sources, mine, theirs, decision.site))
    if entry is not None:
        return Departure(rank, "lines", entry, alone=alone[alone.index(entry) :], since=part.since)
    left_out = None if path else _left_out(sources, mine, theirs)
    return None if left_out is None else replace(left_out, rank=rank)


def _alone(mine: Executed, theirs: Sequence[Executed]) -> tuple[Site, ...]:
    """The lines that are new to the rank in this part and that no other ran in it: those that never ran elsewhere, if any."""
    new = {at: site for at, site in mine.lines.items() if at not in mine.before}
    never = tuple(site for at, site in new.items() if not any(at in other.run for other in theirs))
    return never or tuple(site for at, site in new.items() if not any(at in other.lines for other in theirs))


def _rare(mine: Executed, theirs: Sequence[Executed]) -> list[Site]:
    """The lines that the rank alone ran in the whole run, and seldom: the rarest first, of these the latest."""
    only = [line for at, line in mine.run.items() if not any(at in other.run for other in theirs)]
    seldom = [line for line in only if line.windows <= _RARE]
    return [line.site for line in sorted(seldom, key=lambda line: (line.windows, -line.last))]


def _since_loop(mine: Executed, theirs: Sequence[Executed], header: Site) -> tuple[Site, ...]:
    """The rare lines that the rank alone ran after a loop began: they may have changed how often it runs."""
    began = mine.run[place(header)].first if place(header) in mine.run else 0
    rare = (site for site in _rare(mine, theirs) if site.file == header.file)
    return tuple(site for site in rare if place(site) in mine.before and mine.run[place(site)].first > began)[:1]


def _jump(sources: Mapping[str, str], site: Site) -> str:
    return jump_at(sources.get(site.file, ""), site.line)


def _untaken(
    sources: Mapping[str, str], mine: Executed, theirs: Sequence[Executed], path: Sequence[Site]
) -> Departure | None:
    """The first statement that decided against a line of a path which the rank did not run."""
    order = {at: number for number, at in enumerate(mine.lines)}
    found = [way for site in path if place(site) not in mine.lines for way in _decided(sources, mine, theirs, site)]
    return min(found, key=lambda way: order[place(way.site)], default=None)


def _left_out(sources: Mapping[str, str], mine: Executed, theirs: Sequence[Executed]) -> Departure | None:
    """The first statement that decided against a line which all others ran in this part, and that it or they never left out."""
    missed = (
        site
        for at, site in theirs[0].lines.items()
        if at not in mine.lines
        and all(at in other.lines for other in theirs)
        and (at in mine.before or not any(at in other.before for other in theirs))
    )
    return next((way for site in missed for way in _decided(sources, mine, theirs, site)), None)


def _inside(
    sources: Mapping[str, str], mine: Executed, theirs: Sequence[Executed], header: Site
) -> tuple[tuple[Site, Site], ...]:
    """Headers that ran in functions which ``header`` calls, without the lines that all others then ran; outermost first."""
    if place(header) not in mine.lines:
        return ()
    later = list(mine.lines.values())[list(mine.lines).index(place(header)) + 1 :]
    own = (header.file, header.function)
    called = list(takewhile(lambda site: (site.file, site.function) != own, later))
    missed = [at for at in theirs[0].lines.values() if place(at) not in mine.lines and at.function != header.function]
    first: dict[Site, Site] = {}
    for site in missed:
        if all(place(site) in other.lines for other in theirs):
            ways = (way.site for way in _decided(sources, mine, theirs, site) if way.site in called)
            first.setdefault(next(ways, header), site)
    return tuple((site, first[site]) for site in called if site in first)[:_MOST_INSIDE]


def _decided(
    sources: Mapping[str, str], mine: Executed, theirs: Sequence[Executed], missed: Site
) -> Iterator[Departure]:
    order = {line: number for number, (file, line) in enumerate(mine.lines) if file == missed.file}
    for found in decided_against(sources.get(missed.file, ""), missed.line, order):
        header = Site(missed.file, found.line, missed.function)
        if not found.loop:
            yield Departure(-1, "branch", header, missed=missed)
        elif not _continued_alike(mine, theirs, header):
            yield Departure(-1, "loop", header, missed=missed)


def _continued_alike(mine: Executed, theirs: Sequence[Executed], header: Site) -> bool:
    """Whether the line of the function that the rank ran after a loop was over is one that others ran too."""
    of_function = [
        at for at, site in mine.lines.items() if site.file == header.file and site.function == header.function
    ]
    after = (
        next((at for at in of_function[of_function.index(place(header)) + 1 :]), None)
        if place(header) in of_function
        else None
    )
    return after is not None and any(after in other.lines for other in theirs)


def _loop_left(sources: Mapping[str, str], alone: Sequence[Site], path: Sequence[Site]) -> Departure | None:
    """The loop around a line of a path after which the rank alone ran a line of the same function."""
    for site in path:
        for after in alone:
            if (after.file, after.function) == (site.file, site.function):
                header = loop_before(sources.get(site.file, ""), site.line, after.line)
                if header is not None:
                    return Departure(-1, "loop", Site(site.file, header, site.function), after=after)
    return None
