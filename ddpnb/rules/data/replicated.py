"""Tensors that a program declares the same on several ranks, and that are not: what tensor-parallel layers take."""

from __future__ import annotations

from collections import defaultdict

from ddpnb.facts.digests import split
from ddpnb.facts.places import moments, where
from ddpnb.model import phrases
from ddpnb.model.events.data import ReplicatedTensor
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording
from ddpnb.rules.data.shards import DATASET_DIFFERS

_GROUPS = 4  # in the evidence
_REMEDY = (
    "Give all ranks of a tensor-parallel group the same batch: as num_replicas= and rank= of DistributedSampler those of the "
    "data-parallel dimension (of a mesh with one: mesh['dp'].size() and mesh['dp'].get_local_rank(); else 1 and 0), and the "
    "same seed for random inputs."
)


def find(recording: Recording) -> Finding | None:
    """DDP503: the n-th tensor that ranks of one group declared replicated was another one on some of them."""
    made: dict[tuple[int, ...], dict[int, dict[int, ReplicatedTensor]]] = defaultdict(lambda: defaultdict(dict))
    for rank, record in recording.ranks.items():
        for one in record.events(ReplicatedTensor):
            if rank in one.ranks:
                made[one.ranks][one.number][rank] = one
    first = [
        next((held for _, held in sorted(numbers.items()) if len({one.digest for one in held.values()}) > 1), None)
        for _, numbers in sorted(made.items())
    ]
    differing = [held for held in first if held is not None]
    if not differing:
        return None
    held = differing[0]
    group = sorted(held)
    apart = split({rank: one.digest for rank, one in held.items()})
    rest = [rank for rank in group if rank not in apart.odd]
    sides = () if apart.culprits else apart.sides
    shapes = split({rank: " x ".join(map(str, one.shape)) for rank, one in held.items()}).sides
    number, sizes = held[group[0]].number, phrases.by_side(shapes, lambda rank: " x ".join(map(str, held[rank].shape)))
    return Finding(
        DATASET_DIFFERS,
        f"The inputs of tensor-parallel layers differ on {phrases.ranks(group)}, where they have to be the same.",
        apart.culprits,
        tuple(rank for rank in group if apart.culprits and rank not in apart.culprits),
        where=where(held, [*apart.culprits, *(rank for rank in group if rank not in apart.culprits)]),
        evidence=(
            f"Tensor {number} that these ranks declared replicated (DTensor.from_local) is another one on "
            f"{phrases.ranks(apart.odd)} than on {phrases.ranks(rest)}: {sizes}.",
            *(f"Those of {phrases.ranks(sorted(other))} differ too." for other in differing[1:_GROUPS]),
            *phrases.undecided(sides),
        ),
        remedy=_REMEDY,
        sides=sides,
        moments=moments(held),
    )
