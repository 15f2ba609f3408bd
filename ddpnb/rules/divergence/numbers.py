"""Ranks that use other parameters than the others, or give their gradients another weight."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from ddpnb.recording.facts.replicas import Replicas, kept_together
from ddpnb.recording.facts.snapshot import PerRank, Snapshot
from ddpnb.recording.replicas import Model, Sample
from ddpnb.recording.split import Split
from ddpnb.rules.divergence.optimizers import SCALING_DIFFERS, scales_differ
from ddpnb.rules.rule import FEW, Draft, each, family, of_samples, rule, say

_Scale = tuple[str, tuple[float, ...]]  # the last operations of a loss, and its factors


@rule("DDP402", "rank-dependent-branch")
def other_parameters(snap: Snapshot) -> Iterable[Draft]:
    """find_unused_parameters=True hides that the ranks use different parameters."""
    for own in kept_together(snap.recording):
        yield from _unused(own)


def _unused(own: Replicas) -> Iterator[Draft]:
    for turn, samples in own.turns("backward").items():
        told = PerRank(samples).of(lambda sample: sample.unused)
        if len(told) == len(samples) and told.split.differs:
            yield _other_branch(own.model, turn, own.of_step("forward", samples), told, own.split(told))
            return


def _other_branch(
    model: Model, turn: int, samples: Mapping[int, Sample], told: PerRank[tuple[str, ...]], apart: Split
) -> Draft:
    everybody = set.intersection(*(set(names) for names in told.values()))
    less = {rank: tuple(name for name in names if name not in everybody) for rank, names in told.items()}
    return of_samples(
        samples,
        say(
            "In backward {turn} {who} [uses|use] different parameters of {module}{than}; find_unused_parameters=True hides it.",
            apart.culprits or told,
            turn=turn,
            module=model.module,
            than=" than the other ranks" if apart.culprits else "",
        ),
        apart.culprits,
        "Take the same branch on all ranks (broadcast the decision from rank 0), or weight the gradients of these "
        "parameters by the number of ranks that used them.",
        evidence=(
            *each(
                told,
                lambda rank: (
                    f"Rank {rank} does not use {', '.join(less[rank])}."
                    if less[rank]
                    else f"Rank {rank} uses all of these parameters."
                ),
            ),
            "Their gradients are still averaged over all ranks, with zeros from the ranks that did not use them.",
        ),
        tensors=tuple(dict.fromkeys(name for names in less.values() for name in names))[:20],
        sides=apart.sides,
    )


@family(SCALING_DIFFERS, after=(SCALING_DIFFERS.code,))
def weights(snap: Snapshot) -> Iterable[Draft]:
    """Losses of another scale, or gradients that each rank clips by its own norm."""
    for own in kept_together(snap.recording):
        # Where the scalers differ, losses and norms differ as a consequence.
        if not own.model.wrapper or not scales_differ(own):
            yield from _scaled(own)
            yield from _clipped(own)


def _scaled(own: Replicas) -> Iterator[Draft]:
    """The loss is reduced or scaled differently on some ranks, in every step."""
    turns = [samples for samples in own.turns("backward").values() if len(samples) > 1]
    seen: dict[int, set[_Scale]] = defaultdict(set)
    for samples in turns:
        for rank, sample in samples.items():
            seen[rank].add((sample.graph, tuple(round(factor, 9) for factor in sample.factors)))
    # Only what is always the same on each rank is a setting; the rest follows from the batches.
    if len(turns) < 2 or any(len(scales) > 1 for scales in seen.values()):
        return
    how = PerRank({rank: next(iter(scales)) for rank, scales in seen.items()})
    apart = own.split(how)
    if not apart.differs or _other_loss(how) or _same_weight(own, how):
        return
    yield of_samples(
        turns[0],
        say(
            "{who} [scales|scale] the loss differently from the other ranks: the gradients of the ranks have different weights "
            "in the average."
            if apart.culprits
            else "{who} scale the loss differently: their gradients have different weights in the average.",
            apart.culprits or how,
        ),
        apart.culprits,
        "Divide by the same number on all ranks (all_reduce the count first where batches differ).",
        evidence=each(sorted(how), lambda rank: f"Rank {rank}: {_in_words(*how[rank])}."),
        certainty="likely",
        sides=apart.sides,
    )


def _other_loss(how: Mapping[int, _Scale]) -> bool:
    """Whether the graphs end in different losses, which is a branch, and not in one that is reduced in another way (sum, mean)."""
    ends = {graph.rsplit(" < ", 1)[-1].removesuffix(" mean").removesuffix(" sum") for graph, _ in how.values()}
    return len(ends) > 1 and not ends <= {"Sum", "Mean"}


def _same_weight(own: Replicas, how: Mapping[int, _Scale]) -> bool:
    """Whether the losses of a whole optimizer step have the same weight on all ranks, in other numbers of micro-batches."""
    counts: dict[int, set[float | None]] = defaultdict(set)
    for samples in own.turns("gradients").values():
        for rank, sample in samples.items():
            counts[rank].add(sample.backwards)
    if counts.keys() < how.keys() or any(len(seen) > 1 or None in seen for seen in counts.values()):
        return False
    weights = {
        (graph, round(math.prod(factors) * (next(iter(counts[rank])) or 0.0), 6))
        for rank, (graph, factors) in how.items()
    }
    return len(weights) == 1


def _in_words(graph: str, factors: tuple[float, ...]) -> str:
    end = graph.rsplit(" < ", maxsplit=1)[-1] or "the loss"
    return f"{end}, times {' times '.join(f'{factor:.6g}' for factor in factors)}" if factors else end


def _clipped(own: Replicas) -> Iterator[Draft]:
    """Gradients are clipped by different norms: before they were synchronised."""
    for samples in own.turns("clip").values():
        norms = PerRank({rank: sample.norm for rank, sample in samples.items()})
        cut = any((sample.norm or 0.0) > (sample.max_norm or math.inf) for sample in samples.values())
        if norms.split.differs and cut:
            yield of_samples(
                samples,
                "Every rank clips its gradients by its own norm: they are not synchronised at that point.",
                tuple(sorted(samples)),
                "Synchronise first, then clip: after backward() with DistributedDataParallel, else after your all_reduce.",
                evidence=[f"Rank {rank}: norm {norms[rank] or 0.0:.6g}." for rank in sorted(norms)[:FEW]],
            )
            return
