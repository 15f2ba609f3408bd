"""How one of two sides left the way of the other: by its path; without one, by counts of batches and the source text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto

from ddpnb.recording import phrases
from ddpnb.recording.calls import Call, Site
from ddpnb.recording.collectives import Collective
from ddpnb.recording.facts import hints
from ddpnb.recording.facts.paths.partings import parting
from ddpnb.recording.facts.uneven_loaders import fewer_batches
from ddpnb.recording.facts.waits import Wait
from ddpnb.recording.findings import Hint
from ddpnb.recording.parting import Parting
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.source.loops import every_iteration
from ddpnb.recording.source.paths import parting as parting_in_text
from ddpnb.recording.source.paths import path_to

_FEW = 8


class Left(StrEnum):
    """How a side left the way of the other."""

    LOOP = auto()  # it ran fewer iterations
    SKIPPED = auto()  # it did not make the call of the other
    EXTRA = auto()  # it made a call that the other did not
    EITHER = auto()  # one of the two skipped the call of the other
    SEPARATE = auto()  # each made a call of its own


@dataclass(frozen=True, slots=True)
class Departure:
    """What a side did, and why it is that side. ``ranks`` is empty for ``EITHER`` and ``SEPARATE``.

    ``counted``: loaders counted fewer batches on these ranks. ``past``: a rank that waits in the call which they went past.
    """

    how: Left
    ranks: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    hint: Hint | None = None
    counted: bool = False
    past: int = -1


def from_calls(recording: Recording, collective: Collective) -> Departure:
    """Of ranks whose calls with one number differ."""
    if len(collective.sides) != 2:
        return Departure(Left.SEPARATE)
    reference, odd = collective.sides
    known = parting(recording, odd, reference)
    return _by_path(recording, collective, known) if known is not None else _by_text(recording, collective)


def _by_path(recording: Recording, collective: Collective, known: Parting) -> Departure:
    sides = collective.sides
    ways = {side: way for side in sides for way in known.ways if way.ranks and set(way.ranks) <= set(side)}
    if len(ways) != 2:
        return Departure(Left.SEPARATE)
    gone = next((side for side in sides if known.left_loop(side)), None)
    if gone is not None:
        (inside,) = (side for side in sides if side != gone)
        if _made(recording, gone, collective.calls[inside[0]]):
            return Departure(Left.LOOP, gone)
    alone = [side for side, way in ways.items() if way.calls]
    if len(alone) != 1:
        return Departure(Left.SEPARATE)
    left = next((side for side in sides if known.odd and set(known.odd) <= set(side)), None)
    if left is None:
        return Departure(Left.EITHER)
    return Departure(Left.EXTRA if alone == [left] else Left.SKIPPED, left, tuple(by_habit(known, left)))


def by_habit(known: Parting, ranks: tuple[int, ...]) -> list[str]:
    """Why ranks are named although all decided alike and they are not fewer: of decisions the Parting shows it."""
    fewer = all(len(way.ranks) > len(ranks) for way in known.ways if not set(way.ranks) & set(ranks))
    if known.kind not in ("call", "operation") or fewer:
        return []
    return [f"Before, {phrases.ranks(ranks)} had made another call at this point."]


def _made(recording: Recording, ranks: tuple[int, ...], call: Call) -> bool:
    """Whether ranks have made this call in earlier iterations: else those who are in it made one more call, no more iterations."""
    return all(calls_like(record, call) or record.forgotten for record in (recording.ranks[rank] for rank in ranks))


def calls_like(record: RankRecord, call: Call) -> int:
    """How many calls a rank has made from the line of a call, in its group."""
    return sum(1 for c in record.calls if c.site == call.site and c.group.key == call.group.key)


def _by_text(recording: Recording, collective: Collective) -> Departure:
    """What can be said without paths: by the counts of batches, else by where the calls are in the text."""
    reference, odd = collective.sides
    gone = [side for side in collective.sides if fewer_batches(recording, side)]
    where = parting_in_text(recording, *(_path(recording, collective, side) for side in (odd, reference)))
    if where.relation != "sequence":
        return Departure(Left.SEPARATE)
    if len(gone) == 1:
        return Departure(Left.LOOP, gone[0], counted=True)
    if len(odd) == len(reference):
        return Departure(Left.EITHER)
    return Departure(Left.SKIPPED, odd, hint=hints.deciding_branch(recording, [where.other]))


def _path(recording: Recording, collective: Collective, side: tuple[int, ...]) -> tuple[Site, ...]:
    """The path of a side to its call: of its ranks at the line of the first one, the longest known path."""
    calls = collective.calls
    paths = (path_to(recording.ranks[rank], calls[rank]) for rank in side if calls[rank].site == calls[side[0]].site)
    return max(paths, key=len)


def from_end(recording: Recording, ended: Sequence[int], waiting: Sequence[int], first: int, call: Call) -> Departure:
    """Of ranks that ended while others wait, of which ``first`` waits in ``call``."""
    path = path_to(recording.ranks[first], call)
    known = parting(recording, tuple(ended), tuple(waiting))
    counted = fewer_batches(recording, ended)
    left = known.left_loop(ended) if known is not None else counted or every_iteration(recording.sources, path)
    if left and all(calls_like(recording.ranks[rank], call) for rank in ended):
        return Departure(Left.LOOP, tuple(ended), counted=counted)
    return Departure(Left.SKIPPED, tuple(ended), hint=hints.deciding_branch(recording, path, ended=True))


def from_groups(recording: Recording, waits: Mapping[int, Wait], calls: Mapping[int, Call]) -> Departure:
    """Of ranks that wait for each other in several groups: those that went past a call in which another waits."""
    asked: set[tuple[frozenset[int], Site]] = set()  # ranks that wait for the same at the same line get one answer
    for rank in sorted(calls):
        others = frozenset(waits[rank].missing & calls.keys())
        if (others, calls[rank].site) in asked:
            continue
        asked.add((others, calls[rank].site))
        for other in sorted(others)[:_FEW]:
            known = parting(recording, (other,), (rank,))
            mine, theirs = (known.way_of((one,)) for one in (other, rank)) if known is not None else (None, None)
            if mine is not None and theirs is not None and theirs.calls and not mine.calls:
                ranks = (one for one in waits[rank].missing if calls.get(one) and calls[one].site == calls[other].site)
                hint = hints.deciding_branch(recording, path_to(recording.ranks[rank], calls[rank]))
                return Departure(Left.SKIPPED, tuple(sorted(ranks)), hint=hint, past=rank)
    return Departure(Left.SEPARATE)


def jumped(recording: Recording, culprits: tuple[int, ...], waiting: tuple[int, ...]) -> bool:
    """Whether culprits left the way of the others by an exception or a jump."""
    known = parting(recording, culprits, waiting)
    return known is not None and known.jumped(culprits)
