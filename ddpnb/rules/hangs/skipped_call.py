"""DDP301 or DDP308: two sides made different calls with one sequence number, since one of them left the way of the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ddpnb.facts import hints
from ddpnb.facts.paths import partings as paths
from ddpnb.model import phrases
from ddpnb.model.calls import Call, Site
from ddpnb.model.collectives import Collective
from ddpnb.model.findings import Finding, FindingType, Hint
from ddpnb.model.parting import Parting
from ddpnb.model.recording import Recording
from ddpnb.rules.hangs.uneven_iterations import calls_like, fewer_batches, uneven_calls
from ddpnb.source.branches import conditions_of
from ddpnb.source.paths import parting, path_to

COLLECTIVE_MISSING = FindingType("DDP301", "collective-missing", ways_part=True)
TOGETHER = "Make all ranks take the same branch: all_reduce the flag first, then call on all ranks or on none."


def find(recording: Recording, collective: Collective) -> Finding | None:
    """The finding; None where the ranks make different calls on purpose, in a branch each or at the same line."""
    if len(collective.sides) != 2:
        return None
    reference, odd = collective.sides
    known = paths.parting(recording, odd, reference)
    return _by_path(recording, collective, known) if known is not None else _by_source(recording, collective)


def _by_path(recording: Recording, collective: Collective, known: Parting) -> Finding | None:
    sides = collective.sides
    ways = {side: way for side in sides for way in known.ways if way.ranks and set(way.ranks) <= set(side)}
    if len(ways) != 2:
        return None
    gone = next((side for side in sides if known.left_loop(side)), None)
    if gone is not None:
        (inside,) = (side for side in sides if side != gone)
        if _made(recording, gone, collective.calls[inside[0]]):
            return uneven_calls(recording, collective, (gone, inside))
    alone = [side for side, way in ways.items() if way.calls]
    if len(alone) != 1:
        return None  # each has a call of its own
    left = next((side for side in sides if known.odd and set(known.odd) <= set(side)), None)
    if left is None:
        return one_skipped(collective)
    evidence = by_habit(known, left)
    return extra(collective, left, evidence) if alone == [left] else skipped(collective, left, evidence)


def by_habit(known: Parting, ranks: tuple[int, ...]) -> list[str]:
    """Why ranks are named although all decided alike and they are not fewer: of decisions the Parting shows it."""
    fewer = all(len(way.ranks) > len(ranks) for way in known.ways if not set(way.ranks) & set(ranks))
    if known.kind not in ("call", "operation") or fewer:
        return []
    return [f"Before, {phrases.ranks(ranks)} had made another call at this point."]


def _made(recording: Recording, ranks: tuple[int, ...], call: Call) -> bool:
    """Whether ranks have made this call in earlier iterations: else those who are in it made one more call, no more iterations."""
    return all(calls_like(record, call) or record.forgotten for record in (recording.ranks[rank] for rank in ranks))


def _by_source(recording: Recording, collective: Collective) -> Finding | None:
    """What can be said without paths: by the counts of batches, else by where the calls are in the text."""
    reference, odd = collective.sides
    gone = [side for side in collective.sides if fewer_batches(recording, side)]
    where = parting(recording, *(_path(recording, collective, side) for side in (odd, reference)))
    if where.relation != "sequence":
        return None
    if len(gone) == 1:
        return uneven_calls(recording, collective, (gone[0], odd if gone[0] == reference else reference))
    if len(odd) == len(reference):
        return one_skipped(collective)
    conditions = conditions_of(recording.sources.get(where.other.file, ""), where.other.line)
    evidence = hints.different_locals(recording, where, odd, reference, conditions)
    return skipped(collective, odd, evidence, hints.deciding_branch(recording, [where.other]))


def _path(recording: Recording, collective: Collective, side: tuple[int, ...]) -> tuple[Site, ...]:
    """The path of a side to its call: of its ranks at the line of the first one, the longest known path."""
    calls = collective.calls
    paths = (path_to(recording.ranks[rank], calls[rank]) for rank in side if calls[rank].site == calls[side[0]].site)
    return max(paths, key=len)


def skipped(
    collective: Collective, culprits: tuple[int, ...], evidence: Sequence[str] = (), hint: Hint | None = None
) -> Finding:
    """These ranks, one of two sides, skipped the call of the others."""
    (waiting,) = (side for side in collective.sides if side != culprits)
    mine, theirs = collective.calls[culprits[0]], collective.calls[waiting[0]]
    return Finding(
        COLLECTIVE_MISSING,
        f"{phrases.ranks(culprits, True)} did not call the {theirs.op} that {phrases.ranks(waiting)} "
        f"{phrases.verb(waiting, 'is', 'are')} blocked in{phrases.at(theirs.site)}: {phrases.verb(culprits, 'it is', 'they are')} "
        f"in {mine.op}{phrases.at(mine.site)}.",
        culprits,
        waiting,
        theirs,
        collective.sites((*culprits, *waiting)),
        (*_places(collective, waiting, culprits), *evidence),
        TOGETHER,
        certainty="likely",
        hint=hint,
    )


def extra(collective: Collective, culprits: tuple[int, ...], evidence: Sequence[str] = ()) -> Finding:
    """These ranks, one of two sides, made a call which the others passed by."""
    (waiting,) = (side for side in collective.sides if side != culprits)
    own, later = collective.calls[culprits[0]], collective.calls[waiting[0]]
    return Finding(
        replace(COLLECTIVE_MISSING, extra_call=True),
        f"Only {phrases.ranks(culprits)} called the {own.op}{phrases.at(own.site)}: {phrases.ranks(waiting)} "
        f"{phrases.verb(waiting, 'is', 'are')} already in {later.op}{phrases.at(later.site)}.",
        culprits,
        waiting,
        later,
        collective.sites((*culprits, *waiting)),
        (*_places(collective, culprits, waiting), *evidence),
        TOGETHER,
        certainty="likely",
    )


def one_skipped(collective: Collective) -> Finding:
    """Two sides at different lines, where no recorded fact tells which of them skipped the other's call."""
    here = [(side, collective.calls[side[0]]) for side in collective.sides]
    places = [
        f"{phrases.ranks(side, True)} {phrases.verb(side, 'is', 'are')} in {phrases.in_call(call)}{phrases.at(call.site)}"
        for side, call in here
    ]
    return Finding(
        COLLECTIVE_MISSING,
        f"{places[0]}, {places[1][:1].lower()}{places[1][1:]}: one side skipped the call of the other.",
        (),
        (),
        here[0][1],
        collective.sites(rank for side in collective.sides for rank in side),
        tuple(phrases.undecided(collective.sides)),
        TOGETHER,
        sides=collective.sides,
        certainty="likely",
    )


def _places(collective: Collective, *sides: tuple[int, ...]) -> tuple[str, str]:
    (one, call), (other, later) = ((side, collective.calls[side[0]]) for side in sides)
    return (
        f"{phrases.ranks(one, True)} {phrases.verb(one, 'is', 'are')} in {phrases.in_call(call)}{phrases.at(call.site)}.",
        f"{phrases.ranks(other, True)} {phrases.verb(other, 'is', 'are')} in {phrases.in_call(later)}{phrases.at(later.site)}, "
        f"the same sequence number (seq {later.seq}) of {later.group}.",
    )
