"""Findings about data that is split between ranks without a DistributedSampler."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations

from ddpnb.diagnosis.data.loading import Loading, Loop, common, is_subset
from ddpnb.diagnosis.data.shards import Views, alike, dataset_of, differs, order_of, same
from ddpnb.diagnosis.divergence.digests import split
from ddpnb.model import phrases
from ddpnb.model.events.data import DatasetSeen
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording

_RANKS = 16  # of a group that are compared with each other
_LOOPS = 16
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
    rows = {rank: one.rows for rank, one in datasets.items() if one is not None and one.rows and is_subset(one)}
    if len(rows) < len(group):
        return None
    sizes = [rows[rank].n for rank in group]
    whole = max(rows[rank].top for rank in group) + 1
    if not 0.95 * whole <= sum(sizes) <= 1.05 * whole or min(sizes) < 8:
        return None  # they were not meant to be the parts of one whole
    pairs = [(a, b) for a, b in combinations(group[:_RANKS], 2) if alike(views, first, a, b) == "overlapping"]
    if not pairs:
        return None
    overlapping = sorted({rank for pair in pairs for rank in pair})
    return differs(
        first,
        overlapping,
        f"{phrases.ranks(overlapping, True)} train on overlapping parts of a data set of {whole} samples: "
        "each rank split it differently.",
        [f"Rank {rank} holds {rows[rank].n} samples." for rank in overlapping[:8]],
        _SEED,
    )
