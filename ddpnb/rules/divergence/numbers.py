"""Findings about the numbers that pass through a replica: inputs, the scale of losses and gradients, used parameters."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import combinations, product

from ddpnb.facts.digests import by_turn, models_of, of_step, split
from ddpnb.model import phrases
from ddpnb.model.events.data import LoaderSeen
from ddpnb.model.findings import Finding, FindingType, Severity
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Model
from ddpnb.rules.data.shards import DATASET_DIFFERS, SAME_DATA
from ddpnb.rules.data.structure import BAD_SAMPLE
from ddpnb.rules.divergence.builder import finding_of, number_of
from ddpnb.rules.divergence.manual_replicas import together
from ddpnb.rules.divergence.not_finite import NAN_ON_RANK, first_losses, not_finite
from ddpnb.rules.divergence.optimizers import SCALING_DIFFERS, scaler_differs

RANK_DEPENDENT_BRANCH = FindingType("DDP402", "rank-dependent-branch")

_ALIKE = 3  # turns in which batches must be the same before that is no coincidence


def find(recording: Recording) -> list[Finding]:
    """The findings about inputs and losses, model by model."""
    found: list[Finding] = []
    for number, models in models_of(recording).items():
        if len(models) < 2 or not together(recording, number, models):
            continue
        model = models[min(models)]
        # Where the scalers differ, losses and norms differ as a consequence.
        of_scale = () if model.wrapper and scaler_differs(recording, number) else (_scaled, _clipped)
        for rule in (not_finite, _other_structure, _unused, *of_scale, _same_inputs, _overlapping):
            finding = rule(recording, number, model)
            if finding is not None:
                found.append(finding)
    early = None if any(finding.type in (NAN_ON_RANK, BAD_SAMPLE) for finding in found) else first_losses(recording)
    return [early, *found] if early is not None else found


def _other_structure(recording: Recording, number: int, model: Model) -> Finding | None:
    """DDP508: a batch with a different structure (types, keys, dimensions) on some ranks."""
    usual: dict[int, str] = {}
    for turn, samples in by_turn(recording, number, "forward").items():
        kinds = {rank: str(sample.facts.get("inputs", "")) for rank, sample in samples.items()}
        apart = split(kinds)
        # A rank whose inputs are always of their own kind has another kind of data, not a bad sample.
        odd = tuple(r for r in kinds if apart.differs and usual.get(r, "") not in ("", kinds[r]))
        known = [rank for rank in kinds if usual.get(rank)]
        odd = tuple(sorted(set(odd).intersection(apart.blamed(odd, known))))
        if odd:
            rank = odd[0]
            return finding_of(
                BAD_SAMPLE,
                f"The batch of forward {turn} has a different structure on {phrases.ranks(odd)}.",
                samples,
                odd,
                [f"Rank {rank}: {kinds[rank]}, previously {usual[rank]}."],
                "Make the collate function return the same structure for every batch.",
                certainty="likely",
                severity="warning",
            )
        usual |= kinds
    return None


def _unused(recording: Recording, number: int, model: Model) -> Finding | None:
    """DDP402: find_unused_parameters=True hides that the ranks use different parameters."""
    for turn, samples in by_turn(recording, number, "backward").items():
        told = {
            rank: tuple(map(str, s.facts["unused"]))
            for rank, s in samples.items()
            if isinstance(s.facts.get("unused"), list)
        }
        if len(told) < 2 or len(told) < len(samples) or len(set(told.values())) < 2:
            continue
        apart = split(told)
        culprits = apart.culprits
        samples = of_step(recording, number, "forward", samples)
        everybody = set.intersection(*(set(names) for names in told.values()))
        tensors = tuple(dict.fromkeys(n for names in told.values() for n in names if n not in everybody))
        return finding_of(
            RANK_DEPENDENT_BRANCH,
            f"In backward {turn} {phrases.ranks(culprits)} {phrases.verb(culprits, 'uses', 'use')} different parameters of "
            f"{model.module} than the other ranks; find_unused_parameters=True hides it."
            if culprits
            else f"In backward {turn} {phrases.ranks(told)} use different parameters of {model.module}; "
            "find_unused_parameters=True hides it.",
            samples,
            culprits,
            [
                f"Rank {rank} does not use {', '.join(less)}." if less else f"Rank {rank} uses all of these parameters."
                for rank, names in sorted(told.items())[:8]
                for less in ([n for n in names if n not in everybody],)
            ]
            + ["Their gradients are still averaged over all ranks, with zeros from the ranks that did not use them."],
            "Take the same branch on all ranks (broadcast the decision from rank 0), or weight the gradients of these "
            "parameters by the number of ranks that used them.",
            tensors=tensors,
            sides=apart.sides,
        )
    return None


def _scaled(recording: Recording, number: int, model: Model) -> Finding | None:
    """DDP409: the loss is reduced or scaled differently on some ranks, in every step."""
    turns = [samples for samples in by_turn(recording, number, "backward").values() if len(samples) > 1]
    if len(turns) < 2:
        return None
    reductions: dict[int, set[str]] = defaultdict(set)
    factors: dict[int, set[tuple[float, ...]]] = defaultdict(set)
    for samples in turns:
        for rank, sample in samples.items():
            reductions[rank].add(str(sample.facts.get("graph", "")))
            factors[rank].add(tuple(round(factor, 9) for factor in sample.numbers("factor")))
    # Only what is always the same on each rank is a setting; the rest follows from the batches.
    if any(len(kinds) > 1 for kinds in reductions.values()) or any(len(values) > 1 for values in factors.values()):
        return None
    how = {rank: (next(iter(reductions[rank])), next(iter(factors[rank]))) for rank in reductions}
    apart = split(how)
    if not apart.differs:
        return None
    if len({graph.split(" < ")[-1] for graph, _ in how.values()}) > 1 and not _reduction_alone(how):
        return None  # a different loss: a branch, not a scale
    if _same_weight(recording, number, how):
        return None
    samples, culprits = turns[0], apart.culprits
    return finding_of(
        SCALING_DIFFERS,
        f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'scales', 'scale')} the loss differently from the other ranks: "
        "the gradients of the ranks have different weights in the average."
        if culprits
        else f"{phrases.ranks(how, True)} scale the loss differently: their gradients have different weights in the average.",
        samples,
        culprits,
        [f"Rank {rank}: {_scale_words(*how[rank])}." for rank in sorted(how)[:8]],
        "Divide by the same number on all ranks (all_reduce the count first where batches differ).",
        certainty="likely",
        sides=apart.sides,
    )


def _same_weight(recording: Recording, number: int, how: Mapping[int, tuple[str, tuple[float, ...]]]) -> bool:
    """Whether the losses of a whole optimizer step have the same weight on all ranks, in other numbers of micro-batches."""
    counts: dict[int, set[float | None]] = defaultdict(set)
    for samples in by_turn(recording, number, "gradients").values():
        for rank, sample in samples.items():
            counts[rank].add(sample.number("backwards"))
    if counts.keys() < how.keys() or any(len(seen) > 1 or None in seen for seen in counts.values()):
        return False
    weights = {
        rank: (graph, round(math.prod(factors) * (counts[rank].copy().pop() or 0.0), 6))
        for rank, (graph, factors) in how.items()
    }
    return len(set(weights.values())) == 1


def _reduction_alone(how: Mapping[int, tuple[str, tuple[float, ...]]]) -> bool:
    """Whether the graphs end in the same loss, reduced in another way (sum, mean)."""
    ends = {graph.split(" < ")[-1].removesuffix(" mean").removesuffix(" sum") for graph, _ in how.values()}
    return len(ends) == 1 or ends <= {"Sum", "Mean"}


def _scale_words(graph: str, factors: tuple[float, ...]) -> str:
    end = graph.rsplit(" < ", maxsplit=1)[-1] or "the loss"
    return f"{end}, times {' times '.join(f'{factor:.6g}' for factor in factors)}" if factors else end


def _clipped(recording: Recording, number: int, model: Model) -> Finding | None:
    """DDP409: gradients are clipped by different norms: before they were synchronised."""
    seen = [samples for samples in by_turn(recording, number, "clip").values() if len(samples) > 1]
    odd = [
        samples
        for samples in seen
        if split({rank: s.number("norm") for rank, s in samples.items()}).differs
        and any((s.number("norm") or 0.0) > (s.number("max_norm") or math.inf) for s in samples.values())
    ]
    if not odd:
        return None
    samples = odd[0]
    ranks = tuple(sorted(samples))
    return finding_of(
        SCALING_DIFFERS,
        "Every rank clips its gradients by its own norm: they are not synchronised at that point.",
        samples,
        ranks,
        [f"Rank {rank}: norm {number_of(sample, 'norm')}." for rank, sample in sorted(samples.items())[:8]],
        "Synchronise first, then clip: after backward() with DistributedDataParallel, else after your all_reduce.",
    )


def _same_inputs(recording: Recording, number: int, model: Model) -> Finding | None:
    """DDP501: ranks whose models see the same batches, turn after turn, though batches change."""
    alike: dict[frozenset[int], list[float]] = defaultdict(list)
    turns = 0
    for samples in by_turn(recording, number, "forward").values():
        if len(samples) < 2 or not all(s.number("training") and s.number("inputs_hash") for s in samples.values()):
            continue
        turns += 1
        sides: dict[float, set[int]] = defaultdict(set)
        for rank, sample in samples.items():
            sides[sample.number("inputs_hash") or 0.0].add(rank)
        for value, side in sides.items():
            if len(side) > 1:
                alike[frozenset(side)].append(value)
    # Constant inputs are dummies, and repeated batches are not this error.
    always = [side for side, seen in alike.items() if len(seen) == turns and len(set(seen)) >= min(turns, _ALIKE)]
    if turns < 2 or not always:
        return None
    culprits = tuple(sorted(max(always, key=len)))
    samples = next(iter(by_turn(recording, number, "forward").values()))
    loaded = any(recording.ranks[rank].events(LoaderSeen) for rank in culprits)
    severity: Severity = "error" if loaded and turns >= _ALIKE else "warning"
    return finding_of(
        SAME_DATA,
        f"{phrases.ranks(culprits, True)} see the same batches in all {turns} forwards that were compared.",
        samples,
        culprits,
        ["The inputs of the wrapped model have the same digest on these ranks, and change from step to step."],
        "Give every rank its own part: DataLoader(..., sampler=DistributedSampler(dataset)) with set_epoch(epoch), "
        "or slice by rank: data[rank::world_size].",
        severity=severity,
        certainty="likely",
    )


def _overlapping(recording: Recording, number: int, model: Model) -> Finding | None:
    """DDP503: one rank sees batches that another saw earlier, while no rank sees a batch twice."""
    seen: dict[int, dict[float, int]] = {}
    for rank, record in recording.ranks.items():
        taken = [s for s in record.samples if (s.model, s.kind) == (number, "forward") and s.number("training")]
        hashes = [(value, s.turn) for s in taken if (value := s.number("inputs_hash"))]
        if len({value for value, _ in hashes}) < len(hashes) or len(hashes) < _ALIKE:
            return None
        seen[rank] = dict(hashes)
    takers: dict[float, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))  # of a batch, by turn
    for rank, told in seen.items():
        for value, turn in told.items():
            takers[value][turn].append(rank)
    common: Counter[tuple[int, int]] = Counter()  # batches that a pair of ranks saw, at different steps
    for ranks in takers.values():
        for one, other in combinations(ranks.values(), 2):
            common.update((min(pair), max(pair)) for pair in product(one, other))
    pair = min(common, key=lambda ranks: (-common[ranks], ranks), default=(0, 0))
    shared = common[pair]
    if shared < _ALIKE:
        return None
    samples = next(iter(by_turn(recording, number, "forward").values()))
    ranks = tuple(sorted(samples))
    return finding_of(
        DATASET_DIFFERS,
        f"The ranks' parts of the data overlap: at least {shared} batches were seen by rank {pair[0]} and rank {pair[1]}, at "
        "different steps.",
        samples,
        ranks,
        ["No rank saw a batch twice: each rank splits the same data in a different order."],
        "Put the data in the same order on all ranks before splitting it: sort it, or shuffle with one seed "
        "(random.Random(seed).shuffle(names)). If each rank is meant to see all of the data, in an order of its own, "
        "nothing is wrong.",
        severity="warning",
        certainty="likely",
    )
