"""Ranks that made different calls with the same sequence number in a group."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from ddpnb.diagnosis import hints
from ddpnb.diagnosis.data.batches import uneven_shards
from ddpnb.diagnosis.divergence.digests import Split
from ddpnb.diagnosis.hangs.call_order import begun_later, in_turn, may_come_again, repeats, share_a_loop
from ddpnb.model import phrases
from ddpnb.model.calls import Call, Site
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording
from ddpnb.source.branches import conditions_of, guards_of
from ddpnb.source.loops import loop_around
from ddpnb.source.paths import Parting, parting, path_to


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One place in a sequence with more than one kind of call.

    ``sides``: the reference first; ``odd``: the ranks whose splits alone do not fit those of their peers.
    """

    calls: dict[int, Call]
    sides: tuple[tuple[int, ...], ...]
    odd: tuple[int, ...] = ()

    @property
    def began_ns(self) -> int:
        return min(call.entered_ns for call in self.calls.values())

    @property
    def harmful(self) -> bool:
        """Whether it blocked or failed a rank: one of its calls was fenced, failed or is still in flight."""
        return any(
            not call.state.seen_by_peers or call.state.in_flight or call.state.name == "FAILED"
            for call in self.calls.values()
        )


def first_disagreement(recording: Recording) -> Disagreement | None:
    """The earliest place at which the ranks disagree, if there is one in what is recorded."""
    places: dict[tuple[str, int], dict[int, Call]] = defaultdict(dict)
    for rank, record in recording.ranks.items():
        for call in record.calls:
            if call.seq:
                places[call.group.key, call.seq][rank] = call
    found = [d for calls in places.values() if len(calls) > 1 and (d := _disagreement(calls)) is not None]
    return min(found, key=lambda d: d.began_ns, default=None)


def _disagreement(calls: dict[int, Call]) -> Disagreement | None:
    sides: dict[str, list[int]] = defaultdict(list)
    for rank in sorted(calls):
        sides[calls[rank].signature.agreed].append(rank)
    if len(sides) == 1:
        odd = _odd_splits(calls)
        if odd:
            rest = tuple(rank for rank in sorted(calls) if rank not in odd)
            if rest:
                return Disagreement(calls, (rest, tuple(sorted(odd))), tuple(sorted(odd)))
            return Disagreement(calls, tuple((rank,) for rank in sorted(odd)))
        return None
    # Among equals the side with the lowest rank comes first: an order of display, no verdict.
    ordered = sorted(sides.values(), key=lambda ranks: (-len(ranks), ranks[0]))
    return Disagreement(calls, tuple(tuple(side) for side in ordered))


def _odd_splits(calls: dict[int, Call]) -> set[int]:
    """The ranks of an all_to_all_single whose splits do not fit those of their peers.

    What rank i sends to j must be what j expects from i; the rank in most broken pairs is odd.
    """
    members = [(place, rank) for place, rank in enumerate(next(iter(calls.values())).group.ranks) if rank in calls]
    sending = [(i, a, sent) for i, a in members if (sent := calls[a].signature.in_splits)]
    expecting = [(j, b, expected) for j, b in members if (expected := calls[b].signature.out_splits)]
    if len(set[int]().union(*(splits for _, _, splits in (*sending, *expecting)))) < 2:
        return set()  # no splits, or all alike: as many comparisons as there are pairs of ranks are saved
    broken: Counter[int] = Counter()
    for i, a, sent in sending:
        for b in [b for j, b, expected in expecting if j < len(sent) and i < len(expected) and sent[j] != expected[i]]:
            broken.update((a, b))
    if not broken:
        return set()
    most = max(broken.values())
    return {rank for rank, count in broken.items() if count == most}


def explain(recording: Recording, found: Disagreement) -> Finding:
    """The finding: which kind of disagreement, or that a rank skipped the call that the others are in."""
    reference = found.calls[found.sides[0][0]]
    odd = found.calls[found.sides[-1][0]]
    where = parting(recording, _path(recording, found, -1), _path(recording, found, 0))
    if where.relation == "sequence" and len(found.sides) == 2:
        return _skipped(recording, found, where)
    return _unlike(recording, found, reference, odd)


def _path(recording: Recording, found: Disagreement, side: int) -> tuple[Site, ...]:
    """The path of a side to its call: of its ranks at the line of the first one, the longest known path."""
    site = found.calls[found.sides[side][0]].site
    ranks = [rank for rank in found.sides[side] if found.calls[rank].site == site]
    return max((path_to(recording.ranks[rank], found.calls[rank]) for rank in ranks), key=len)


# -- different calls on purpose: same line, or the branches of one decision

_UNLIKE = {
    "DDP302": (
        "a different operation",
        "Call the same operation on all ranks here, or use a separate group for each branch.",
    ),
    "DDP303": (
        "a different shape",
        "Use tensors of the same size on all ranks (pad them, or exchange the sizes first).",
    ),
    "DDP304": ("a different dtype", "Convert to one dtype before the call, on every rank."),
    "DDP305": ("different arguments", "Pass the same reduce operation, root, splits and memory layout on every rank."),
}


_SIDES = 8  # different calls that are listed


def _kind(reference: Call, odd: Call) -> str:
    a, b = reference.signature, odd.signature
    if a.op != b.op:
        return "DDP302"
    if a.elements != b.elements and not (a.in_splits or a.out_splits):
        return "DDP303"
    if a.dtypes != b.dtypes:
        return "DDP304"
    return "DDP305"


def _unlike(recording: Recording, found: Disagreement, reference: Call, odd: Call) -> Finding:
    code = _kind(reference, odd)
    changed = [rank for rank in found.calls if _before(recording, found, rank)]
    split = Split(found.sides)
    strayed = _strayed(recording, found)
    culprits = found.odd or split.blamed(changed) or split.blamed(strayed)
    sides = () if culprits else found.sides
    rest = tuple(rank for side in found.sides for rank in side if rank not in culprits)
    waiting = () if sides else rest
    what, remedy = _UNLIKE[code]
    evidence = []
    for side in found.sides[:_SIDES]:
        call = found.calls[side[0]]
        sites = sorted({str(found.calls[rank].site) for rank in side})
        evidence.append(f"{phrases.ranks(side, True)} called {call.signature} at {', '.join(sites[:3])}.")
    if len(found.sides) > _SIDES:
        others = [rank for side in found.sides[_SIDES:] for rank in side]
        evidence.append(f"{phrases.ranks(others, True)} called it in {len(found.sides) - _SIDES} other ways.")
    if code == "DDP305" and reference.signature.in_splits:
        evidence += [
            f"Rank {rank}: sends {_listed(call.signature.in_splits)}, expects {_listed(call.signature.out_splits)}."
            for rank, call in sorted(found.calls.items())[:8]
        ]
    evidence += [_before(recording, found, rank) for rank in changed if rank in culprits][:1]
    if split.tied and culprits and culprits == tuple(sorted(strayed)):
        evidence.append(_in_turn(recording, found, culprits))
    evidence += phrases.undecided(sides)
    place = f"collective #{odd.seq} of {odd.group}"
    if culprits and len(found.sides) == 2:
        mine, theirs = found.calls[culprits[0]], found.calls[(*waiting, *culprits)[0]]
        summary = (
            f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'uses', 'use')} {what} than "
            f"{phrases.ranks(waiting)} in {place}: {_short(mine, theirs)} instead of {_short(theirs, mine)}."
        )
    else:
        other = found.calls[found.sides[1][0]]
        told = phrases.by_side(
            found.sides, lambda rank: _short(found.calls[rank], other if rank in found.sides[0] else reference)
        )
        summary = f"The ranks' calls differ in {place}: {told}."
    return Finding(
        code,
        summary,
        culprits,
        waiting,
        reference,
        _where(found, (*culprits, *rest)),
        tuple(evidence),
        remedy,
        sides=sides,
    )


def _short(call: Call, other: Call) -> str:
    """Only the part of the call that differs."""
    one, two = call.signature, other.signature
    if one.op != two.op:
        return one.op
    if one.elements != two.elements:
        return f"{one.op} of {', '.join(str(list(shape)) for shape in one.shapes)}"
    if one.dtypes != two.dtypes:
        return f"{one.op} of {', '.join(one.dtypes)}"
    if one.reduce_op != two.reduce_op:
        return f"{one.op} with {one.reduce_op}"
    if one.root != two.root:
        return f"{one.op} with root {one.root}"
    if one.in_splits or one.out_splits:
        return f"{one.op} that sends {_listed(one.in_splits)} and expects {_listed(one.out_splits)}"
    return str(one)


def _listed(splits: tuple[int, ...] | None) -> str:
    """The splits, abbreviated where there are many: equal consecutive ones are counted."""
    told = splits or ()
    if len(told) <= 2 * _SIDES:
        return str(list(told))
    pieces = [(value, len(list(equal))) for value, equal in groupby(told)]
    words = [f"{count} x {value}" if count > 1 else str(value) for value, count in pieces[:_SIDES]]
    return f"[{', '.join(words)}{f' ... : {len(told)} in all' if len(pieces) > _SIDES else ''}]"


def _before(recording: Recording, found: Disagreement, rank: int) -> str:
    """The previous call of a rank at this line, if it never made it in this way before."""
    call = found.calls[rank]
    earlier = [
        c for c in recording.ranks[rank].calls if c.site == call.site and c.number < call.number and c.op == call.op
    ]
    if not earlier or any(one.signature.agreed == call.signature.agreed for one in earlier):
        return ""
    return f"Rank {rank}'s previous call at this line was {earlier[-1].signature}."


def _strayed(recording: Recording, found: Disagreement) -> list[int]:
    """Of two sides, the ranks that made their call again without the other side's, where the two alternated."""
    if len(found.sides) != 2:
        return []
    one, other = (found.calls[side[0]] for side in found.sides)
    return [
        rank
        for side, theirs in ((found.sides[0], other), (found.sides[1], one))
        for rank in side
        if repeats(recording.ranks[rank], found.calls[rank], theirs)
    ]


def _in_turn(recording: Recording, found: Disagreement, strayed: tuple[int, ...]) -> str:
    other = next(side for side in found.sides if strayed[0] not in side)
    return in_turn(recording.ranks[strayed[0]], found.calls[strayed[0]], found.calls[other[0]])


def _where(found: Disagreement, order: tuple[int, ...]) -> tuple[tuple[int, Site], ...]:
    return tuple((rank, found.calls[rank].site) for rank in order if rank in found.calls)


# -- a rank that skipped the call that the others are in


def _skipped(recording: Recording, found: Disagreement, where: Parting) -> Finding:
    reference, odd = found.sides[0], found.sides[-1]
    tied = len(odd) == len(reference)
    left = _left_loop(recording, found, where)
    if left is not None:
        if tied and _may_be_another_iteration(recording, found, where) and not fewer_batches(recording, left[0]):
            return _one_skipped(found)
        return _uneven(recording, found, left)
    evidence: list[str] = []
    strayed = tuple(sorted(_strayed(recording, found)))
    if strayed in (tuple(sorted(reference)), tuple(sorted(odd))):
        culprits = strayed
        evidence.append(_in_turn(recording, found, strayed))
    elif (further := _further_on(recording, found, where)) is not None:
        culprits = further
        own, fewer = (recording.ranks[side[0]] for side in (further, odd if further == reference else reference))
        evidence.append(
            f"Rank {own.rank} has started forward {own.forwards}, rank {fewer.rank} forward {fewer.forwards}."
        )
    elif where.one_rest and not may_come_again(recording, *(_path(recording, found, side) for side in (0, -1))):
        culprits = reference if where.other.line > where.one.line else odd
    elif tied:
        return _one_skipped(found)
    else:
        culprits = odd
    waiting = odd if culprits != odd else reference
    mine, theirs = found.calls[culprits[0]], found.calls[waiting[0]]
    missed = where.other if culprits == odd else where.one
    conditions = conditions_of(recording.sources.get(missed.file, ""), missed.line)
    evidence = [
        f"{phrases.ranks(waiting, True)} {phrases.verb(waiting, 'is', 'are')} in {phrases.in_call(theirs)}{phrases.at(theirs.site)}.",
        f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'is', 'are')} in {phrases.in_call(mine)}{phrases.at(mine.site)}, "
        f"the same sequence number (seq {mine.seq}) of {mine.group}.",
        *evidence,
        *hints.guess(recording, [missed]),
        *hints.different_locals(recording, where, culprits, waiting, conditions),
    ]
    return Finding(
        "DDP301",
        f"{phrases.ranks(culprits, True)} did not call the {theirs.op} that {phrases.ranks(waiting)} "
        f"{phrases.verb(waiting, 'is', 'are')} blocked in{phrases.at(theirs.site)}: {phrases.verb(culprits, 'it is', 'they are')} "
        f"in {mine.op}{phrases.at(mine.site)}.",
        culprits,
        waiting,
        theirs,
        _where(found, (*culprits, *waiting)),
        tuple(evidence),
        _TOGETHER,
    )


_TOGETHER = "Make all ranks take the same branch: all_reduce the flag first, then call on all ranks or on none."


def _one_skipped(found: Disagreement) -> Finding:
    """Two sides at different lines, where no recorded fact tells which of them skipped the other's call."""
    here = [(side, found.calls[side[0]]) for side in found.sides]
    stands = [
        f"{phrases.ranks(side, True)} {phrases.verb(side, 'is', 'are')} in {phrases.in_call(call)}{phrases.at(call.site)}"
        for side, call in here
    ]
    return Finding(
        "DDP301",
        f"{stands[0]}, {stands[1][:1].lower()}{stands[1][1:]}: one side skipped the call of the other.",
        (),
        (),
        here[0][1],
        _where(found, tuple(rank for side, _ in here for rank in side)),
        tuple(phrases.undecided(found.sides)),
        _TOGETHER,
        sides=found.sides,
    )


def _further_on(recording: Recording, found: Disagreement, where: Parting) -> tuple[int, ...] | None:
    """The side of which all ranks have begun a later iteration than those of the other: they have passed its call."""
    odd, reference = (found.sides[place] for place in (-1, 0))
    for ahead, behind in ((odd, reference), (reference, odd)):
        last = max((recording.ranks[rank] for rank in behind), key=lambda record: record.forwards)
        if all(begun_later(recording, where, recording.ranks[rank], last) for rank in ahead):
            return ahead
    return None


def _may_be_another_iteration(recording: Recording, found: Disagreement, where: Parting) -> bool:
    """Whether the rank after the loop may be right and the other one have skipped a call: both may run it again."""
    return share_a_loop(recording, where, _path(recording, found, -1))


def fewer_batches(recording: Recording, ranks: Sequence[int]) -> bool:
    """Whether the loaders counted fewer batches on one of these ranks."""
    finding = uneven_shards(recording, stopped=True)
    return finding is not None and not set(finding.culprits).isdisjoint(ranks)


def _left_loop(
    recording: Recording, found: Disagreement, where: Parting
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(ranks that have left a loop, ranks still in it), if one side did and had been in it."""
    odd, reference = found.sides[-1], found.sides[0]
    for gone, inside, gone_at, rest in (
        (odd, reference, where.one, where.other_rest),
        (reference, odd, where.other, where.one_rest),
    ):
        been = found.calls[inside[0]].site
        if not any(call.site == been for call in recording.ranks[gone[0]].calls):
            continue
        here = found.calls[gone[0]].site
        shared = any(call.site == here for call in recording.ranks[inside[0]].calls)
        if not shared and guards_of(recording.sources.get(gone_at.file, ""), gone_at.line):
            continue  # a call that possibly one side alone makes, independent of the loops
        for depth, site in enumerate(rest):
            loop = loop_around(recording.sources.get(site.file, ""), site.line)
            # Deeper frames are ones that the other rank has returned from.
            if loop is not None and ((depth > 0 and gone_at.line > rest[0].line) or gone_at.line > loop[1]):
                return gone, inside
    return None


def _uneven(recording: Recording, found: Disagreement, sides: tuple[tuple[int, ...], tuple[int, ...]]) -> Finding:
    gone, inside = sides
    mine, theirs = found.calls[gone[0]], found.calls[inside[0]]
    records = [recording.ranks[side[0]] for side in (gone, inside)]
    made = [sum(1 for c in record.calls if c.site == theirs.site) for record in records]
    places = _where(found, (*gone, *inside))
    is_, are = phrases.verb(gone, "is", "are"), phrases.verb(inside, "is", "are")
    evidence = [
        f"{phrases.ranks(inside, True)} {are} in {phrases.in_call(theirs)}{phrases.at(theirs.site)}, "
        f"call number {made[1]}{' or later' if records[1].forgotten else ''} at that line.",
        f"{phrases.ranks(gone, True)} made {phrases.calls(records[0], made[0])} at that line and "
        f"{is_} in {phrases.in_call(mine)}{phrases.at(mine.site)}.",
    ]
    what = f"{is_} in {mine.op}{phrases.at(mine.site)} after {phrases.calls(records[0], made[0])} at {theirs.site}"
    return uneven_iterations(gone, inside, what, theirs, places, evidence)


def uneven_iterations(
    gone: tuple[int, ...],
    inside: tuple[int, ...],
    what: str,
    call: Call,
    where: tuple[tuple[int, Site], ...],
    evidence: list[str],
) -> Finding:
    """The finding for a loop of which some ranks ran fewer iterations.

    Args:
        gone: these ranks.
        inside: the ranks that are blocked in one more.
        what: what ``gone`` did, from the verb on.
        call: what ``inside`` are blocked in.
        where: the ranks' places.
        evidence: what was observed.
    """
    return Finding(
        "DDP308",
        f"{phrases.ranks(gone, True)} {what}; {phrases.ranks(inside)} {phrases.verb(inside, 'is', 'are')} "
        f"blocked in one more {call.op}{phrases.at(call.site)}.",
        gone,
        inside,
        call,
        where,
        tuple(evidence),
        "Run the same number of iterations on all ranks: DistributedSampler (drop_last=True), the minimum "
        "length over all ranks, or the Join context manager.",
    )
