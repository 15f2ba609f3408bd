"""Tensors that a program declares the same on several ranks, and that are not: what tensor-parallel layers take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ddpnb.recording import phrases
from ddpnb.recording.events.data import ReplicatedTensor
from ddpnb.recording.facts.places import moments
from ddpnb.recording.facts.snapshot import PerRank, Snapshot
from ddpnb.recording.split import split
from ddpnb.rules.data.samplers import DATASET_DIFFERS
from ddpnb.rules.rule import Draft

_GROUPS = 4  # in the evidence
_REMEDY = (
    "Give all ranks of a tensor-parallel group the same batch: as num_replicas= and rank= of DistributedSampler those of the "
    "data-parallel dimension (of a mesh with one: mesh['dp'].size() and mesh['dp'].get_local_rank(); else 1 and 0), and the "
    "same seed for random inputs."
)


def of_layers(snap: Snapshot) -> Iterable[Draft]:
    """DDP503: the n-th tensor that ranks of one group declared replicated was another one on some of them."""
    made: dict[tuple[int, ...], dict[int, PerRank[ReplicatedTensor]]] = defaultdict(lambda: defaultdict(PerRank))
    for rank, tensors in snap.every(ReplicatedTensor).items():
        for one in tensors:
            if rank in one.ranks:
                made[one.ranks][one.number][rank] = one
    found = [
        held
        for _, numbers in sorted(made.items())
        if (held := next((one for _, one in sorted(numbers.items()) if _digests(one).split.differs), None)) is not None
    ]
    if not found:
        return
    held, *others = found
    ranks = tuple(held)
    apart = split(_digests(held), len(held[ranks[0]].ranks) - len(ranks))
    rest = phrases.besides(ranks, apart.odd)
    shapes = {rank: " x ".join(map(str, one.shape)) for rank, one in held.items()}
    yield Draft(
        f"The inputs of tensor-parallel layers differ on {phrases.ranks(ranks)}, where they have to be the same.",
        apart.culprits,
        _REMEDY,
        held,
        waiting=rest if apart.culprits else (),
        sides=apart.sides,
        evidence=(
            f"Tensor {held[ranks[0]].number} that these ranks declared replicated (DTensor.from_local) is another one on "
            f"{phrases.ranks(apart.odd)} than on {phrases.ranks(rest)}: "
            f"{phrases.by_side(PerRank(shapes).split.sides, shapes.__getitem__)}.",
            *(f"Those of {phrases.ranks(other)} differ too." for other in others[: _GROUPS - 1]),
        ),
        kind=DATASET_DIFFERS,
        moments=moments(held),
    )


def _digests(held: PerRank[ReplicatedTensor]) -> PerRank[str]:
    return held.of(lambda one: one.digest)
