"""Findings about data that is split between ranks without a DistributedSampler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, permutations

from ddpnb.recording import phrases
from ddpnb.recording.events.data import DatasetSeen, ReplicatedTensor, Rows
from ddpnb.recording.facts.loading import (
    Loading,
    Loop,
    alike,
    common,
    dataset_of,
    inputs_agree,
    is_subset,
    order_of,
    views,
)
from ddpnb.recording.facts.places import Timed
from ddpnb.recording.facts.snapshot import PerRank, Snapshot
from ddpnb.recording.split import split
from ddpnb.rules.data.samplers import differ, likely, same
from ddpnb.rules.rule import Draft, each, say

_RANKS = 16  # of a group that are compared with each other
_LOOPS = 16
_SOME = 0.03  # of the samples are in both, where two other ranks have far more in common
_FEW = 8  # samples
_ALIKE = 3  # batches that must be the same before that is no coincidence
_SEED = "Pass random_split a generator with the same seed on all ranks."


def same_batches(snap: Snapshot, group: tuple[int, ...]) -> Draft | None:
    """All loaders that are trained on deliver the same batches on all ranks."""
    own = views(snap.recording)
    each_loader = {rank: _first_of_each_loader(own[rank].training) for rank in group}
    if len({len(loops) for loops in each_loader.values()}) != 1:
        return None
    turns = [dict(zip(group, loops, strict=True)) for loops in zip(*each_loader.values(), strict=True)]
    for loops in turns:
        if len({_way(loop) for loop in loops.values()}) != 1 or _way(loops[group[0]]) is None:
            return None
        if any(alike(own, loops, rank, group[0]) != "same" for rank in group):
            return None
    if not turns:
        return None
    loader = turns[0][group[0]].loader
    how = "in order" if loader.sampler_name == "SequentialSampler" else "shuffled by the same random numbers"
    evidence = [f"Every rank iterates over the whole data set {how}, without a DistributedSampler."]
    if loader.length is not None:
        evidence.append(f"Every rank's loader has {loader.length} batches of {loader.batch_size or 1}.")
    return same(snap, group, _made(turns[0]), evidence)


def same_heads(snap: Snapshot, group: tuple[int, ...]) -> Draft | None:
    """The first batches of a loop that is trained on are the same on all ranks, and not all alike.

    Where the inputs of the model are known, they say more: a rank may take its part of each batch.
    """
    shared = any(snap.ranks[rank].events(ReplicatedTensor) for rank in group)
    first = _first_loops(snap, group)
    heads = {loop.heads for loop in first.values()}
    if shared or len(first) < len(group) or len(heads) != 1 or inputs_agree(snap.recording, group) is not None:
        return None
    seen = heads.pop()
    if len(seen) < _ALIKE or 0.0 in seen or len(set(seen)) < _ALIKE:
        return None
    evidence = [f"The first {len(seen)} batches have the same digests on these ranks, and differ from each other."]
    draft = same(snap, group, _made(first), evidence)
    # Whether each rank takes a part of the batch afterwards is not recorded.
    return likely(draft) if draft is not None else None


def _first_loops(snap: Snapshot, group: tuple[int, ...]) -> PerRank[Loop]:
    """The first loop of each rank that trains."""
    own = views(snap.recording)
    return PerRank((rank, own[rank].training[0]) for rank in group if own[rank].training)


def _made(loops: Mapping[int, Loop]) -> Mapping[int, Timed]:
    """Where the loaders were made, else where they are iterated."""
    return {rank: loop.loader_made or loop for rank, loop in loops.items()}


def _first_of_each_loader(loops: Sequence[Loop]) -> list[Loop]:
    found: dict[int, Loop] = {}
    for loop in loops:
        found.setdefault(loop.loader.number, loop)
    return list(found.values())


def _way(loop: Loop) -> tuple[object, ...] | None:
    """How a loader chooses its samples; None when that does not follow from what is known."""
    loader = loop.loader
    if loader.kind != "map" or loader.own or loader.distributed is not None:
        return None
    if loader.sampler_name != "SequentialSampler" and not (loader.sampler_name == "RandomSampler" and loop.rng):
        return None
    return (
        loop.site.file,
        loop.site.line,
        loader.sampler,
        loop.rng,
        loader.batch_size,
        loader.drop_last,
        loader.length,
    )


def leaks(snap: Snapshot, group: tuple[int, ...]) -> Draft | None:
    """One rank trains on samples that another evaluates on: the ranks split one data set differently."""
    own = views(snap.recording)
    for one, other in permutations(group[:_RANKS], 2):
        found = _leak(own[one], own[other])
        if found is not None:
            first = _first_loops(snap, group)
            orders = {rank: order_of(dataset_of(own, first, rank)) for rank in first}
            apart = split(orders, len(group) - len(first))
            return differ(
                f"Rank {other} trains on samples that rank {one} evaluates on{phrases.at(found.site)}: the ranks "
                "split the data set differently.",
                apart.culprits,
                first,
                [f"On rank {one} itself, training and evaluation samples do not overlap."],
                _SEED,
                apart.sides if apart.differs else ((one,), (other,)),
            )
    return None


def _leak(evaluating: Loading, training: Loading) -> Loop | None:
    """The loop over samples that the other rank trains on."""
    for train in _first_of_each_loader(training.training)[:_LOOPS]:
        trained = training.datasets.get(train.loader.dataset)
        own = [loop for loop in evaluating.training if loop.loader.number == train.loader.number]
        for evaluation in _first_of_each_loader(evaluating.loops)[:_LOOPS]:
            held_out = evaluating.datasets.get(evaluation.loader.dataset)
            mine = evaluating.datasets.get(own[0].loader.dataset) if own else None
            if evaluation.steps or not evaluation.ended_ns or not all(map(is_subset, (trained, held_out, mine))):
                continue
            if _parent(mine) < 0 or _parent(mine) != _parent(held_out) or _parent(mine) != _parent(trained):
                continue
            if _share(mine, held_out) == 0.0 and (_share(trained, held_out) or 0.0) >= _SOME:
                return evaluation
    return None


def _parent(subset: DatasetSeen | None) -> int:
    return subset.parts[0].number if subset is not None and subset.parts else -1


def _share(one: DatasetSeen | None, other: DatasetSeen | None) -> float | None:
    mine, theirs = one and one.rows, other and other.rows
    return common(mine, theirs) if mine and theirs else None


def parts_by_hand(snap: Snapshot, group: tuple[int, ...]) -> Draft | None:
    """Each rank uses its part of a split, but of a different split: the parts overlap."""
    own, first = views(snap.recording), _first_loops(snap, group)
    if len(first) < len(group) or any(loop.loader.distributed is not None for loop in first.values()):
        return None
    datasets = {rank: dataset_of(own, first, rank) for rank in group}
    rows = {rank: one.rows for rank, one in datasets.items() if one is not None and one.rows}
    if len(rows) < len(group) or min(one.n for one in rows.values()) < _FEW:
        return None
    subsets = all(map(is_subset, datasets.values()))
    if not (_parts_of_a_whole(rows) if subsets else _drawn_alike(first, rows)):
        return None
    compared = list(combinations(group[:_RANKS], 2))
    if not any(alike(own, first, a, b) == "overlapping" for a, b in compared):
        return None
    shares = {(a, b): common(rows[a], rows[b]) or 0.0 for a, b in compared}
    pairs = [
        pair for pair in compared if (alike(own, first, *pair) == "overlapping" if subsets else shares[pair] >= _SOME)
    ]
    overlapping = tuple(sorted({rank for pair in pairs for rank in pair}))
    if subsets:
        whole = max(one.top for one in rows.values()) + 1
        text = "{who} train on overlapping parts of a data set of {whole} samples: each rank split it differently."
        held = each(overlapping, lambda rank: f"Rank {rank} holds {rows[rank].n} samples.")
        return differ(say(text, overlapping, whole=whole), overlapping, first, held, _SEED)
    alone = [rank for rank in overlapping if len(pairs) > 1 and all(rank in pair for pair in pairs)]
    most = max((shares[pair] for pair in pairs), default=0.0)
    text = "{who} train on different data sets of {count} samples each that overlap."
    return likely(
        differ(
            say(text, overlapping, count=rows[overlapping[0]].n),
            alone or overlapping,
            _made(first),
            [f"Of the samples of two of these ranks, about {most:.0%} are in both data sets, estimated from digests."],
            "If they are meant to be parts of one data set, choose the parts in the same order on all ranks: with a generator of "
            "the same seed. Ranks that draw samples independently are right as they are.",
        )
    )


def _parts_of_a_whole(rows: Mapping[int, Rows]) -> bool:
    """Whether subsets are about as large together as the data set of which they are."""
    whole = max(one.top for one in rows.values()) + 1
    return 0.95 * whole <= sum(one.n for one in rows.values()) <= 1.05 * whole


def _drawn_alike(first: Mapping[int, Loop], rows: Mapping[int, Rows]) -> bool:
    """Whether data sets that each rank made for itself are of one size, and its loader reads all of them."""
    kinds = {(loop.loader.kind, loop.loader.own) for loop in first.values()}
    return kinds == {("map", False)} and len({one.n for one in rows.values()}) == 1
