"""DDP301: a rank skipped the call that the others are in, and is in a later one with the same sequence number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from ddpnb.diagnosis import hints
from ddpnb.diagnosis.execution.departure import Departure
from ddpnb.diagnosis.execution.departures import came_again, departures, ran_before
from ddpnb.diagnosis.hangs.call_order import begun_later, in_turn, may_come_again, out_of_turn, path_of, share_a_loop
from ddpnb.diagnosis.hangs.uneven_iterations import began_as_many, fewer_batches, ranks_after_loop, uneven_calls
from ddpnb.diagnosis.paths import partings as paths
from ddpnb.model import phrases
from ddpnb.model.collectives import Collective
from ddpnb.model.findings import Finding, FindingType, Hint
from ddpnb.model.recording import Recording
from ddpnb.source.branches import conditions_of
from ddpnb.source.paths import Parting

_BACK = ("except", "continue")  # jumps after which a rank may come to a call again, or to an earlier one

COLLECTIVE_MISSING = FindingType("DDP301", "collective-missing", ways_part=True)


def find(recording: Recording, collective: Collective, where: Parting) -> Finding:
    reference, odd = collective.sides
    tied = len(odd) == len(reference)
    paths = {reference: path_of(recording, collective, 0), odd: path_of(recording, collective, -1)}
    ways = {
        side: departures(recording, side, other, collective.calls[other[0]])
        for side, other in ((reference, odd), (odd, reference))
    }
    left = ranks_after_loop(recording, collective, where) or _seen_to_end(ways)
    if left is not None and _taken_back(ways[left[1]]) and not _taken_back(ways[left[0]]):
        left = None
    seen = left is not None and _left_loop(*(ways[side] for side in left))
    if left is not None and not seen and came_again(recording, left[1], left[0], collective.calls[left[1][0]]):
        left = None
    if left is not None and not _stayed_in_loop(recording, collective, *left, ways[left[0]]):
        # The rank after the loop may be right and the other one have skipped a call: both may run it again.
        again = tied and share_a_loop(recording, where, paths[odd]) and not seen
        if again and not fewer_batches(recording, left[0]):
            return one_skipped(collective)
        return uneven_calls(recording, collective, left)
    evidence: list[str] = []
    strayed, jumped = out_of_turn(recording, collective), [side for side, own in ways.items() if _new_way(own)]
    passed = [side for side, own in ways.items() if own and all(way.kind == "branch" for way in own)]
    if left is not None:
        culprits = left[0]
    elif len(jumped) == 1 and (tied or jumped[0] == odd):
        culprits = jumped[0]
    elif strayed in (reference, odd):
        culprits = strayed
        evidence.append(in_turn(recording, collective, strayed))
    elif (further := _further_on(recording, collective, where)) is not None:
        culprits = further
        own, fewer = (recording.ranks[side[0]] for side in (further, odd if further == reference else reference))
        evidence.append(
            f"Rank {own.rank} has started forward {own.forwards}, rank {fewer.rank} forward {fewer.forwards}."
        )
    elif len(passed) == 1:
        culprits = passed[0]
    elif where.one_rest and not may_come_again(recording, *paths.values()):
        culprits = reference if where.other.line > where.one.line else odd
    elif tied:
        return one_skipped(collective)
    else:
        culprits = odd
    missed = where.other if culprits == odd else where.one
    conditions = conditions_of(recording.sources.get(missed.file, ""), missed.line)
    waiting = odd if culprits != odd else reference
    evidence += hints.different_locals(recording, where, culprits, waiting, conditions)
    return skipped(collective, culprits, evidence, hints.deciding_branch(recording, [missed]))


def by_paths(recording: Recording, collective: Collective) -> Finding | None:
    """What the paths of two sides show: which left a loop, or which went past the call of the other; None: not recorded, or neither."""
    if len(collective.sides) != 2:
        return None
    reference, odd = collective.sides
    known = paths.parting(recording, odd, reference)
    if known is None or known.kind == "operation":
        return None
    ways = {side: way for side in (reference, odd) for way in known.ways if way.ranks and set(way.ranks) <= set(side)}
    if len(ways) != 2:
        return None
    if known.kind == "loop":
        gone = [side for side, way in ways.items() if way.leaves_loop]
        if len(gone) == 1:
            return uneven_calls(recording, collective, (gone[0], odd if gone[0] == reference else reference))
    if all(way.calls for way in ways.values()):
        return None  # each has a call of its own
    left = [side for side in ways if known.odd and set(known.odd) <= set(side)]
    return skipped(collective, left[0]) if len(left) == 1 else one_skipped(collective)


def jumped_past(recording: Recording, collective: Collective) -> Finding | None:
    """DDP301: one side came to its call by a handler or a jump that it had never run, the other as always."""
    if len(collective.sides) != 2:
        return None
    reference, odd = collective.sides
    jumped = [
        side
        for side, other in ((reference, odd), (odd, reference))
        if any(
            way.kind == "jump" and way.word in _BACK
            for way in departures(recording, side, other, collective.calls[other[0]])
        )
    ]
    if len(jumped) != 1 or (len(reference) > len(odd) and jumped[0] == reference):
        return None
    return skipped(collective, jumped[0])


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
        (
            f"{phrases.ranks(waiting, True)} {phrases.verb(waiting, 'is', 'are')} in {phrases.in_call(theirs)}{phrases.at(theirs.site)}.",
            f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'is', 'are')} in {phrases.in_call(mine)}{phrases.at(mine.site)}, "
            f"the same sequence number (seq {mine.seq}) of {mine.group}.",
            *evidence,
        ),
        TOGETHER,
        certainty="likely",
        hint=hint,
    )


TOGETHER = "Make all ranks take the same branch: all_reduce the flag first, then call on all ranks or on none."


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


def _stayed_in_loop(
    recording: Recording,
    collective: Collective,
    gone: tuple[int, ...],
    inside: tuple[int, ...],
    ways: Sequence[Departure],
) -> bool:
    """Whether ranks that are past a loop made as many iterations as those in it, and skipped a call."""
    call = collective.calls[inside[0]]
    return began_as_many(recording, inside[0], call, gone) or any(
        way.skips and not ran_before(recording.ranks[way.rank], way.site, call.site) for way in ways
    )


def _taken_back(ways: Sequence[Departure]) -> bool:
    """Whether ranks came to their call by a handler or a ``continue`` that was new to them: they may be there again."""
    return any(way.kind == "jump" and way.alone and way.word in _BACK for way in ways)


def _seen_to_end(
    ways: Mapping[tuple[int, ...], Sequence[Departure]],
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(ranks that ran the header of the loop around the others' call, and then not its body, those others), of two sides."""
    for gone, inside in permutations(ways):
        if ways[gone] and all(way.kind == "loop" for way in ways[gone]) and not ways[inside]:
            return gone, inside
    return None


def _left_loop(gone: Sequence[Departure], inside: Sequence[Departure]) -> bool:
    """Whether ranks were seen to leave a loop, and the others did not go past a call."""
    return bool(gone) and all(way.leaves_loop for way in gone) and not any(way.skips for way in inside)


def _new_way(ways: Sequence[Departure]) -> bool:
    """Whether a rank left by a jump that no rank had run before: the others did what they always do."""
    return any(way.kind == "jump" for way in ways)


def _further_on(recording: Recording, collective: Collective, where: Parting) -> tuple[int, ...] | None:
    """The side of which all ranks have begun a later iteration than those of the other: they have passed its call."""
    reference, odd = collective.sides
    for ahead, behind in ((odd, reference), (reference, odd)):
        last = max((recording.ranks[rank] for rank in behind), key=lambda record: record.forwards)
        if all(begun_later(recording, where, recording.ranks[rank], last) for rank in ahead):
            return ahead
    return None
