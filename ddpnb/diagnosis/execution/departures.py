"""Where a rank left the way of the others: the line that it alone ran, or the decision after which it did not run theirs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ddpnb.diagnosis.execution.decisions import inside, jump_in, kept_out, left_out, loop_left, not_entered, untaken
from ddpnb.diagnosis.execution.departure import Departure
from ddpnb.diagnosis.execution.handled import until_refusal
from ddpnb.diagnosis.execution.parts import Executed, Part, latest, place
from ddpnb.diagnosis.once import once
from ddpnb.model.calls import Call, CallState, Site
from ddpnb.model.collectives import call_in
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.source.loops import loop_around
from ddpnb.source.paths import path_to

MOST = 8  # ranks of a side that are compared
_RARE = 3  # windows


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
    mine, theirs = _known(recording, ranks), _known(recording, others)
    now = {rank: current(recording.ranks[rank], call) for rank in (*mine, *theirs)}
    part = _part(recording, now)
    if part is None or not mine or not theirs:
        return ()
    part = until_refusal(recording, part)
    paths = {rank: _path(recording.ranks[rank], now[rank]) for rank in (*mine, *theirs)}
    path = max((paths[rank] for rank in theirs), key=len)
    ways = (departure(part, recording.sources, rank, theirs, path, paths[rank]) for rank in mine)
    return tuple(way for way in ways if way is not None and not (call.is_p2p and _is_role(part.ranks[way.rank], way)))


@once
def came_again(recording: Recording, ranks: tuple[int, ...], others: tuple[int, ...], call: Call) -> bool:
    """Whether ranks that are in a call within a loop have left that loop since the last place they share with others.

    They made the call before that place, and after it ran lines that are behind the loop, or of a function that called the
    one with the loop: so they are not in one more iteration, but in the first one of the next time.
    """
    mine, theirs = _known(recording, ranks), _known(recording, others)
    now = {rank: current(recording.ranks[rank], call) for rank in (*mine, *theirs)}
    part = _part(recording, now)
    return part is not None and bool(mine) and all(_left_loop(recording, part, rank, now[rank]) for rank in mine)


def _left_loop(recording: Recording, part: Part, rank: int, call: Call | None) -> bool:
    record = recording.ranks[rank]
    if call is None or not part.calls:
        return False
    before = [one for one in record.calls if one.site == call.site and record.begun_before(one) < part.calls]
    since = [one for one in record.calls if one.site == call.site and record.begun_before(one) >= part.calls]
    if not before or record.begun_before(before[-1]) != part.calls - 1 or since[:1] != [call]:
        return False
    path, ran = path_to(record, call), part.ranks[rank].lines.values()
    for depth, site in enumerate(path):
        loop = loop_around(recording.sources.get(site.file, ""), site.line)
        callers = {(one.file, one.function) for one in path[:depth]}
        own = (site.file, site.function)
        if loop is not None and any(
            (at.file, at.function) in callers - {own} or ((at.file, at.function) == own and at.line > loop[1])
            for at in ran
        ):
            return True
    return False


def ran_before(record: RankRecord, one: Site, other: Site) -> bool:
    """Whether a rank ran a line for the last time before it ran another one for the first time."""
    if record.executed is None:
        return False
    ran = {place(line.site): line for line in record.executed.lines}
    mine, theirs = ran.get(place(one)), ran.get(place(other))
    if mine is None or theirs is None:
        return False
    if mine.last != theirs.first:
        return mine.last < theirs.first
    window = next((window for window in record.executed.windows if window.number == mine.last), None)
    order = [place(site) for site in record.executed.of(window)] if window is not None else []
    return place(one) in order[: order.index(place(other))] if place(other) in order else False


def _known(recording: Recording, ranks: Iterable[int]) -> list[int]:
    return [rank for rank in ranks if rank in recording.ranks][:MOST]


def _part(recording: Recording, now: Mapping[int, Call | None]) -> Part | None:
    """The part before these calls of ranks."""
    return latest(
        recording,
        {rank: recording.ranks[rank].begun_before(own) if own is not None else None for rank, own in now.items()},
    )


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
    part: Part,
    sources: Mapping[str, str],
    rank: int,
    others: Collection[int],
    path: Sequence[Site] = (),
    own: Sequence[Site] = (),
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
        own: the lines by which the rank came to where it is.
    """
    mine, theirs = part.ranks[rank], [part.ranks[other] for other in others]
    alone = _alone(mine, theirs, part.aligned)
    decision = (
        untaken(sources, mine, theirs, path)
        or loop_left(sources, alone, theirs, path)
        or not_entered(mine, path, set(map(place, own)))
    )
    branched = decision is not None and decision.kind == "branch"
    on_path = {(site.file, site.function) for site in path}
    shared = {(line.site.file, line.site.function) for other in theirs for line in other.run.values()}

    def jump(lines: Iterable[Site], where: Collection[tuple[str, str]]) -> tuple[Site, str] | None:
        """The first of these lines that leaves the usual way, in one of these functions; of an exception its handler."""
        words = [(site, jump_in(sources, site)) for site in lines if (site.file, site.function) in where]
        found = [(site, word) for site, word in words if word]
        handlers = [(site, word) for site, word in found if word == "except"]
        return next(iter(handlers if found and found[0][1] == "raise" and handlers else found), None)

    entry = next((site for site in alone if (site.file, site.function) in shared), None)
    # Without a path, a jump in a function that was called from lines that the rank alone ran is a consequence of them.
    of_entry = {(entry.file, entry.function)} if entry is not None and not path else shared
    here = jump(alone, on_path) or (None if branched else jump(alone, of_entry))
    # What comes after the decision is a consequence of it.
    order = {at: number for number, at in enumerate(mine.lines)}
    passed = () if path else tuple(left_out(sources, mine, theirs))
    if here is not None and (decision is None or order[place(here[0])] < order.get(place(decision.last), 0)):
        also = _elsewhere(passed, here[0])
        return Departure(rank, "jump", *here, alone=alone, since=part.since, inside=also)
    if path and not branched:
        rare = [site for site in _rare(mine, theirs) if not _before_call(mine, site, path[-1])]
        # In another function it explains a loop that was seen to end only if it is of the same optimizer step.
        near = [site for site in rare if decision is None or mine.run[place(site)].last >= mine.step]
        there = jump(rare, on_path) or jump(near, shared)
        if there is not None:
            return Departure(rank, "jump", *there)
    if decision is not None:
        earlier = () if branched else _since_loop(mine, theirs, decision.site)
        return replace(decision, rank=rank, alone=earlier, inside=inside(sources, mine, theirs, decision.site))
    if entry is not None:
        header, left = kept_out(sources, mine, theirs, entry)
        after, also = alone[alone.index(entry) :], _elsewhere(passed, entry)
        return Departure(rank, "lines", entry, alone=after, since=part.since, header=header, left=left, inside=also)
    if passed:
        return replace(passed[0], rank=rank)
    once = _once(mine, theirs, path, shared)
    return Departure(rank, "lines", once[0], alone=once) if once else None


def _elsewhere(passed: Iterable[Departure], site: Site) -> tuple[tuple[Site, Site], ...]:
    """The first of these decisions in another function: the line that the rank alone ran may have led to it."""
    return tuple((way.site, way.missed) for way in passed if way.missed and way.site.function != site.function)[:1]


def _alone(mine: Executed, theirs: Sequence[Executed], aligned: bool) -> tuple[Site, ...]:
    """The lines that are new to the rank in this part and that no other ran, if any, or else that no other ran in this part."""
    new = {at: site for at, site in mine.lines.items() if at not in mine.before}
    never = tuple(site for at, site in new.items() if not any(at in other.run for other in theirs))
    if never or not aligned:
        return never
    return tuple(site for at, site in new.items() if not any(at in other.lines for other in theirs))


def _rare(mine: Executed, theirs: Sequence[Executed]) -> list[Site]:
    """The lines that the rank alone ran in the whole run, and seldom: the rarest first, of these the latest."""
    only = [line for at, line in mine.run.items() if not any(at in other.run for other in theirs)]
    seldom = [line for line in only if line.windows <= _RARE]
    return [line.site for line in sorted(seldom, key=lambda line: (line.windows, -line.last))]


def _before_call(mine: Executed, site: Site, call: Site) -> bool:
    """Whether a rank ran a line for the last time before it first ran that of a call: it skipped none of those then."""
    one, first = mine.run.get(place(site)), mine.run.get(place(call))
    return one is not None and first is not None and one.last < first.first


def _once(
    mine: Executed, theirs: Sequence[Executed], path: Sequence[Site], shared: Collection[tuple[str, str]]
) -> tuple[Site, ...]:
    """The lines of one function, which others ran too, that the rank alone ran, once, after it first ran that of the call.

    What it does leads to a call only later, as metrics that are reduced at the end of an epoch. None of several functions.
    """
    found = [site for site in _rare(mine, theirs) if path and not _before_call(mine, site, path[-1])]
    once = sorted((site for site in found if mine.run[place(site)].windows == 1), key=lambda site: site.line)
    functions = {(site.file, site.function) for site in once}
    return tuple(once) if len(functions) == 1 and functions <= set(shared) else ()


def _since_loop(mine: Executed, theirs: Sequence[Executed], header: Site) -> tuple[Site, ...]:
    """The rare lines that the rank alone ran after a loop began: they may have changed how often it runs."""
    began = mine.run[place(header)].first if place(header) in mine.run else 0
    rare = (site for site in _rare(mine, theirs) if site.file == header.file)
    return tuple(site for site in rare if place(site) in mine.before and mine.run[place(site)].first > began)[:1]
