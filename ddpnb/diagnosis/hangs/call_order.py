"""Which of two calls a rank skipped: what the order of the recorded calls, or of the lines, proves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ddpnb.model.calls import NO_SITE, Call, Site
from ddpnb.model.collectives import Collective
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.source.branches import function_at
from ddpnb.source.loops import loops_of
from ddpnb.source.paths import Parting, path_to


def _repeats(record: RankRecord, own: Call, other: Call) -> bool:
    """Whether a rank makes ``own`` again without ``other`` in between, where the two alternated until now.

    At least one whole period is needed. Of many calls the older ones are not recorded, so the last ones must give the
    same answer as all.
    """
    if record.partial:
        return False
    kinds = (_kind(own), _kind(other))
    turns = [
        kind
        for call in record.calls
        if call.seq and call.group.key == own.group.key and call.number < own.number and (kind := _kind(call)) in kinds
    ]
    return len(turns) > 2 and turns[-1] == kinds[0] and all(turn != following for turn, following in pairwise(turns))


def _kind(call: Call) -> tuple[Site, str]:
    return call.site, call.signature.agreed


def out_of_turn(recording: Recording, collective: Collective) -> tuple[int, ...]:
    """Of two sides, the ranks that made their call again without the other side's, where the two alternated."""
    if len(collective.sides) != 2:
        return ()
    calls, (first, second) = collective.calls, collective.sides
    pairs = ((rank, other) for side, other in ((first, second), (second, first)) for rank in side)
    return tuple(sorted(rank for rank, other in pairs if _repeats(recording.ranks[rank], calls[rank], calls[other[0]])))


def in_turn(recording: Recording, collective: Collective, ranks: Sequence[int]) -> str:
    """The evidence line for a side that is out of turn."""
    other_side = next(side for side in collective.sides if ranks[0] not in side)
    record, own, other = recording.ranks[ranks[0]], collective.calls[ranks[0]], collective.calls[other_side[0]]
    recorded = "In all recorded calls" if record.forgotten else "Until now"
    alike = (other.op, other.site) == (own.op, own.site)
    skipped, between = (f"{call.signature if alike else call.op} ({call.site})" for call in (other, own))
    return f"{recorded} rank {record.rank} called {skipped} between two calls of {between}; this time it did not."


def path_of(recording: Recording, collective: Collective, side: int) -> tuple[Site, ...]:
    """The path of a side to its call: of its ranks at the line of the first one, the longest known path."""
    calls, ranks = collective.calls, collective.sides[side]
    paths = (path_to(recording.ranks[rank], calls[rank]) for rank in ranks if calls[rank].site == calls[ranks[0]].site)
    return max(paths, key=len)


def begun_later(recording: Recording, where: Parting, one: RankRecord, other: RankRecord) -> bool:
    """Whether ``one`` has begun a later iteration than ``other`` of the innermost loop that holds both lines.

    The forwards of wrapped models are counted: the last one must be in that very loop, as an evaluation runs forward
    too.
    """
    source = recording.sources.get(where.one.file, "")
    loops = [loops_of(source, site.line) for site in (where.one, where.other)]
    if not where.one_rest or not all(loops) or loops[0][0] is not loops[1][0] or not one.forwards > other.forwards > 0:
        return False
    loop = loops[0][0]
    last = next((sample.site for sample in reversed(one.samples) if sample.kind == "forward"), NO_SITE)
    return last.file == where.one.file and loop.lineno <= last.line <= (loop.end_lineno or loop.lineno)


def may_come_again(recording: Recording, *paths: tuple[Site, ...]) -> bool:
    """Whether a rank may run these lines again: a frame is in a loop, or not all callers are known."""
    return any(not _whole(recording, path) or any(_looped(recording, site) for site in path) for path in paths)


def share_a_loop(recording: Recording, where: Parting, path: tuple[Site, ...]) -> bool:
    """Whether a loop contains both lines at which two paths diverge, or a frame that both share.

    Args:
        recording: holds the sources.
        where: where the paths diverge.
        path: the whole path that ends with ``where.one_rest``.
    """
    callers = path[: len(path) - len(where.one_rest)]
    loops = loops_of(recording.sources.get(where.one.file, ""), where.one.line)
    both = any(loop.lineno <= where.other.line <= (loop.end_lineno or loop.lineno) for loop in loops)
    return both or any(_looped(recording, site) for site in callers)


def _whole(recording: Recording, path: tuple[Site, ...]) -> bool:
    """Whether the path begins at a module's level, or shows at least one caller."""
    first = path[0]
    if first.function == "?":  # the line that called, without a stack
        return function_at(recording.sources.get(first.file, ""), first.line) == "<module>"
    return len(path) > 1 or first.function == "<module>"


def _looped(recording: Recording, site: Site) -> bool:
    source = recording.sources.get(site.file, "")
    return not source or bool(loops_of(source, site.line))
