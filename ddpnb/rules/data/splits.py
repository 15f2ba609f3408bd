"""Findings about data that is split between ranks without a DistributedSampler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations

from ddpnb.facts.digests import split
from ddpnb.model import phrases
from ddpnb.model.events.data import DatasetSeen, ReplicatedTensor, Rows
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording
from ddpnb.rules.data.loading import Loading, Loop, common, is_subset
from ddpnb.rules.data.shards import Views, alike, dataset_of, differs, inputs_agree, order_of, same

_RANKS = 16  # of a group that are compared with each other
_LOOPS = 16
_SOME = 0.03  # of the samples are in both, where two other ranks have far more in common
_ALIKE = 3  # batches that must be the same before that is no coincidence
_SEED = "Pass random_split a generator with the same seed on all ranks."


def same_batches(recording: Recording, group: tuple[int, ...], views: Views) -> Finding | None:
    """All loaders that are trained on deliver the same batches on all ranks."""
    first = {rank: _first_of_each_loader(views[rank].training) for rank in group}
    counts = {len(loops) for loops in first.values()}
    if len(counts) != 1 or 0 in counts:
        return None
    for turn in range(counts.pop()):
        loops = {rank: first[rank][turn] for rank in group}
        if len({_way(loop) for loop in loops.values()}) != 1 or _way(loops[group[0]]) is None:
            return None
        if any(alike(views, loops, rank, group[0]) != "same" for rank in group):
            return None
    loops = {rank: first[rank][0] for rank in group}
    loader = loops[group[0]].loader
    how = "in order" if loader.sampler_name == "SequentialSampler" else "shuffled by the same random numbers"
    evidence = [f"Every rank iterates over the whole data set {how}, without a DistributedSampler."]
    if loader.length is not None:
        evidence.append(f"Every rank's loader has {loader.length} batches of {loader.batch_size or 1}.")
    made = {rank: loop.loader_made or loop for rank, loop in loops.items()}
    return same(recording, group, made, evidence)


def same_heads(recording: Recording, group: tuple[int, ...], views: Views) -> Finding | None:
    """The first batches of a loop that is trained on are the same on all ranks, and not all alike.

    Where the inputs of the model are known, they say more: a rank may take its part of each batch.
    """
    if inputs_agree(recording, group) is not None or any(
        recording.ranks[rank].events(ReplicatedTensor) for rank in group
    ):
        return None
    first = {rank: views[rank].training[0] for rank in group if views[rank].training}
    heads = {rank: loop.heads for rank, loop in first.items()}
    if len(first) < len(group) or len(set(heads.values())) > 1:
        return None
    seen = heads[group[0]]
    if len(seen) < _ALIKE or 0.0 in seen or len(set(seen)) < _ALIKE:
        return None
    evidence = [f"The first {len(seen)} batches have the same digests on these ranks, and differ from each other."]
    finding = same(recording, group, {rank: loop.loader_made or loop for rank, loop in first.items()}, evidence)
    # Whether each rank takes a part of the batch afterwards is not recorded.
    return replace(finding, severity="warning", certainty="likely") if finding is not None else None


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


def leaks(_recording: Recording, group: tuple[int, ...], views: Views) -> Finding | None:
    """One rank trains on samples that another evaluates on: the ranks split one data set differently."""
    for one, other in permutations(group[:_RANKS], 2):
        found = _leak(views[one], views[other])
        if found is None:
            continue
        first = {rank: views[rank].training[0] for rank in group if views[rank].training}
        apart = split({rank: order_of(dataset_of(views, first, rank)) for rank in first})
        return differs(
            first,
            apart.culprits if apart.differs else [],
            f"Rank {other} trains on samples that rank {one} evaluates on{phrases.at(found.site)}: the ranks "
            "split the data set differently.",
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
            if evaluation.steps or not all(map(is_subset, (trained, held_out, mine))):
                continue
            if _parent(mine) < 0 or _parent(mine) != _parent(held_out) or _parent(mine) != _parent(trained):
                continue
            if _share(mine, held_out) == 0.0 and (_share(trained, held_out) or 0.0) >= 0.03:
                return evaluation
    return None


def _parent(subset: DatasetSeen | None) -> int:
    return subset.parts[0].number if subset is not None and subset.parts else -1


def _share(one: DatasetSeen | None, other: DatasetSeen | None) -> float | None:
    mine, theirs = one and one.rows, other and other.rows
    return common(mine, theirs) if mine and theirs else None


def parts_by_hand(_recording: Recording, group: tuple[int, ...], views: Views) -> Finding | None:
    """Each rank uses its part of a split, but of a different split: the parts overlap."""
    first = {rank: views[rank].training[0] for rank in group if views[rank].training}
    if len(first) < len(group) or any(loop.loader.distributed is not None for loop in first.values()):
        return None
    datasets = {rank: dataset_of(views, first, rank) for rank in group}
    rows = {rank: one.rows for rank, one in datasets.items() if one is not None and one.rows}
    if len(rows) < len(group) or min(one.n for one in rows.values()) < 8:
        return None
    subsets = all(map(is_subset, datasets.values()))
    if not (_parts_of_a_whole(rows) if subsets else _drawn_alike(first, rows)):
        return None
    pairs = [(a, b) for a, b in combinations(group[:_RANKS], 2) if alike(views, first, a, b) == "overlapping"]
    if not pairs:
        return None
    if not subsets:
        pairs = [(a, b) for a, b in combinations(group[:_RANKS], 2) if (common(rows[a], rows[b]) or 0.0) >= _SOME]
    overlapping = sorted({rank for pair in pairs for rank in pair})
    if subsets:
        whole = max(one.top for one in rows.values()) + 1
        evidence = [f"Rank {rank} holds {rows[rank].n} samples." for rank in overlapping[:8]]
        summary = f"{phrases.ranks(overlapping, True)} train on overlapping parts of a data set of {whole} samples: each rank split it differently."
        return differs(first, overlapping, summary, evidence, _SEED)
    alone = [rank for rank in overlapping if len(pairs) > 1 and all(rank in pair for pair in pairs)]
    shares = [share for a, b in pairs if (share := common(rows[a], rows[b]))]
    made = {rank: loop.loader_made or loop for rank, loop in first.items()}
    finding = differs(
        made,
        alone or overlapping,
        f"{phrases.ranks(overlapping, True)} train on different data sets of {rows[overlapping[0]].n} samples each that overlap.",
        [
            f"Of the samples of two of these ranks, about {max(shares, default=0.0):.0%} are in both data sets, estimated from digests."
        ],
        "If they are meant to be parts of one data set, choose the parts in the same order on all ranks: with a generator of "
        "the same seed. Ranks that draw samples independently are right as they are.",
    )
    return replace(finding, severity="warning", certainty="likely")


def _parts_of_a_whole(rows: Mapping[int, Rows]) -> bool:
    """Whether subsets are about as large together as the data set of which they are."""
    whole = max(one.top for one in rows.values()) + 1
    return 0.95 * whole <= sum(one.n for one in rows.values()) <= 1.05 * whole


def _drawn_alike(first: Mapping[int, Loop], rows: Mapping[int, Rows]) -> bool:
    """Whether data sets that each rank made for itself are of one size, and its loader reads all of them."""
    kinds = {(loop.loader.kind, loop.loader.own) for loop in first.values()}
    return kinds == {("map", False)} and len({one.n for one in rows.values()}) == 1
