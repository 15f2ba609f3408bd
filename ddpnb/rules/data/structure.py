"""Whether the batches of all ranks have the same structure: types, keys and dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from ddpnb.facts.digests import split
from ddpnb.model import phrases
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Sample
from ddpnb.rules.data.loading import Loop
from ddpnb.rules.data.shards import Views, dataset_of, side_by_side
from ddpnb.rules.divergence.builder import finding_of

BAD_SAMPLE = FindingType("DDP508", "bad-sample")


def _class(views: Views, loops: Mapping[int, Loop], rank: int) -> str:
    dataset = dataset_of(views, loops, rank)
    return dataset.class_name if dataset is not None else ""


def of_batches(_recording: Recording, group: tuple[int, ...], views: Views) -> Finding | None:
    """DDP508: what a rank trains on is never of the kind that the others train on, though it is made by the same class.

    A kind that comes and goes (a field that some samples have) is no finding: another batch may bring it.
    """
    for loops in side_by_side(group, views):
        kinds = {rank: loop.kinds for rank, loop in loops.items()}
        if not all(kinds.values()) or len({_class(views, loops, rank) for rank in group}) > 1:
            continue
        if set.intersection(*(set(one) for one in kinds.values())):
            continue
        apart = split({rank: "; ".join(one) for rank, one in kinds.items()})
        if any(set(kinds[one[0]]) & set(kinds[other[0]]) for one, other in combinations(apart.sides, 2)):
            continue
        odd = apart.culprits
        rest = [rank for rank in group if rank not in odd]
        samples = {rank: Sample(0, "batch", 1, site=loop.site) for rank, loop in loops.items()}
        place = phrases.at(loops[group[0]].site)
        return finding_of(
            BAD_SAMPLE,
            f"The batches of {phrases.ranks(odd)} have a different structure than those of {phrases.ranks(rest)}{place}."
            if odd
            else f"The batches of {phrases.ranks(group)} have different structures{place}.",
            samples,
            odd,
            [f"Rank {rank}: {kinds[rank][0]}." for rank in (*odd, *rest)[:8]],
            "Make the data set and its collate function return the same structure on every rank.",
            severity="warning",
            sides=apart.sides,
            certainty="likely",
        )
    return None
