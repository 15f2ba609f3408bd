"""Whether replicas see the same batches, or each other's, from the digests of their inputs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import combinations, product

from ddpnb.recording import phrases
from ddpnb.recording.events.data import LoaderSeen
from ddpnb.recording.facts.replicas import Replicas, kept_together
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.rules.data.samplers import DATASET_DIFFERS, SAME_DATA
from ddpnb.rules.rule import Draft, of_samples, say

_ALIKE = 3  # turns in which batches must be the same before that is no coincidence


def of_models(snap: Snapshot) -> Iterable[Draft]:
    for own in kept_together(snap.recording):
        for look in (_same_inputs, _overlapping):
            if (draft := look(own)) is not None:
                yield draft


def _same_inputs(own: Replicas) -> Draft | None:
    """DDP501: ranks whose models see the same batches, turn after turn, though batches change."""
    alike: dict[frozenset[int], list[float]] = defaultdict(list)
    forwards = own.turns("forward")
    turns = 0
    for samples in forwards.values():
        if len(samples) < 2 or not all(sample.training and sample.inputs_hash for sample in samples.values()):
            continue
        turns += 1
        sides: dict[float, set[int]] = defaultdict(set)
        for rank, sample in samples.items():
            sides[sample.inputs_hash or 0.0].add(rank)
        for value, side in sides.items():
            if len(side) > 1:
                alike[frozenset(side)].append(value)
    # Constant inputs are dummies, and repeated batches are not this error.
    always = [side for side, seen in alike.items() if len(seen) == turns and len(set(seen)) >= min(turns, _ALIKE)]
    if turns < 2 or not always:
        return None
    culprits = tuple(sorted(max(always, key=len)))
    loaders = [loader for rank in culprits for loader in own.ranks[rank].events(LoaderSeen)]
    return of_samples(
        next(iter(forwards.values())),
        say("{who} see the same batches in all {turns} forwards that were compared.", culprits, turns=turns),
        culprits,
        "The loaders have a DistributedSampler: look at its rank= and num_replicas=, and at what changes its batches afterwards."
        if loaders and all(loader.distributed is not None for loader in loaders)
        else "Give every rank its own part: DataLoader(..., sampler=DistributedSampler(dataset)) with set_epoch(epoch), "
        "or slice by rank: data[rank::world_size].",
        evidence=["The inputs of the wrapped model have the same digest on these ranks, and change from step to step."],
        kind=SAME_DATA,
        severity="error" if loaders and turns >= _ALIKE else "warning",
        certainty="likely",
    )


def _overlapping(own: Replicas) -> Draft | None:
    """DDP503: one rank sees batches that another saw earlier, while no rank sees a batch twice."""
    takers: dict[float, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))  # of a batch, by turn
    for rank in own.ranks:
        taken = [sample for sample in own.of(rank, "forward") if sample.training]
        hashes = [(value, s.turn) for s in taken if (value := s.inputs_hash)]
        if len({value for value, _ in hashes}) < len(hashes) or len(hashes) < _ALIKE:
            return None
        for value, turn in hashes:
            takers[value][turn].append(rank)
    common: Counter[tuple[int, int]] = Counter()  # batches that a pair of ranks saw, at different steps
    for ranks in takers.values():
        for one, other in combinations(ranks.values(), 2):
            common.update((min(pair), max(pair)) for pair in product(one, other))
    pair = min(common, key=lambda ranks: (-common[ranks], ranks), default=(0, 0))
    if common[pair] < _ALIKE:
        return None
    samples = next(iter(own.turns("forward").values()))
    return of_samples(
        samples,
        f"The ranks' parts of the data overlap: {phrases.ranks(pair)} both saw at least {common[pair]} batches.",
        tuple(sorted(samples)),
        "Put the data in the same order on all ranks before splitting it: sort it, or shuffle with one seed "
        "(random.Random(seed).shuffle(names)). If each rank is meant to see all of the data, in an order of its own, "
        "nothing is wrong.",
        evidence=[
            f"{phrases.ranks(pair, True)} saw these batches at different steps.",
            "No rank saw a batch twice: each rank splits the same data in a different order.",
        ],
        kind=DATASET_DIFFERS,
        severity="warning",
        certainty="likely",
    )
