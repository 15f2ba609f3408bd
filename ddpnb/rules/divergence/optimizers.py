"""Optimizers that differ: how often they step, their own states."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from ddpnb.facts.digests import Difference, Past, against_past, by_turn, last_common, split
from ddpnb.facts.places import known, where
from ddpnb.model import phrases
from ddpnb.model.events.models import ScalerMade
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Model, Sample
from ddpnb.rules.divergence.builder import finding_of, how_far, loaded_alone, loads, placed
from ddpnb.rules.divergence.settings import OPTIMIZER_DIFFERS

SCALING_DIFFERS = FindingType("DDP409", "scaling-differs")
STATE_ON_ONE_RANK = FindingType("DDP605", "state-on-one-rank", ways_part=True)


def steps_differ(recording: Recording, model: Model, found: Difference, steps: dict[int, int]) -> Finding:
    apart = split(steps)
    culprits = _pace(recording, found).blamed(apart)
    by_then = f"by forward {found.turn} of {model.module}"
    return finding_of(
        OPTIMIZER_DIFFERS,
        f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'has', 'have')} run a different number of optimizer steps than "
        f"the other ranks {by_then}."
        if culprits
        else f"{phrases.ranks(steps, True)} have run different numbers of optimizer steps {by_then}.",
        found.samples,
        culprits,
        [
            f"Rank {rank}: {count} optimizer steps before forward {found.turn}."
            for rank, count in sorted(steps.items())[:8]
        ]
        + how_far(found),
        "Step the optimizer on all ranks or on none: decide together (reduce the flag first).",
        tensors=found.tensors,
        sides=apart.sides,
    )


def _pace(recording: Recording, found: Difference) -> Past:
    """Which ranks ran a different number of optimizer steps before this forward than before each earlier one."""
    turns = by_turn(recording, found.model, "forward")
    made: dict[int, list[int]] = {}
    for rank in found.samples:
        steps = [turns[turn][rank].step for turn in range(1, found.turn + 1) if rank in turns.get(turn, {})]
        whole = len(steps) == found.turn and len(steps) > 2
        made[rank] = [after - before for before, after in pairwise(steps)] if whole else []
    return against_past(
        {rank: steps[-1] if steps else None for rank, steps in made.items()},
        {rank: steps[:-1] for rank, steps in made.items()},
    )


def other_update(recording: Recording, model: Model, found: Difference) -> Finding:
    """DDP410 or DDP605: the same parameters and gradients, but different parameters after the step."""
    restored = {
        rank: [load for load in loaded if load.began_ns <= found.samples[rank].at_ns]
        for rank, loaded in loads(recording, "optimizer").items()
        if rank in found.samples
    }
    loaders = tuple(rank for rank, loaded in sorted(restored.items()) if loaded)
    evidence = [
        f"Parameters and gradients agreed before optimizer step {found.turn - 1}; after it {', '.join(found.tensors[:6])} differ: "
        "the optimizer states differ.",
        *how_far(found),
    ]
    if loaded_alone(recording, loaders, found.samples):
        return Finding(
            STATE_ON_ONE_RANK,
            f"Only {phrases.ranks(loaders)} restored the optimizer state: the replicas diverge at optimizer step "
            f"{found.turn - 1}.",
            loaders,
            tuple(rank for rank in sorted(found.samples) if rank not in loaders),
            None,
            known(tuple((rank, restored[rank][-1].site) for rank in loaders)),
            tuple(evidence),
            "Load the optimizer's (and the scaler's) state on every rank.",
            tensors=found.tensors[:20],
            certainty="likely",  # whether all or none should have
        )
    culprits = found.split.culprits
    return finding_of(
        OPTIMIZER_DIFFERS,
        f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'updates', 'update')} {model.module} differently from "
        f"the other ranks since optimizer step {found.turn - 1}."
        if culprits
        else f"{phrases.ranks(found.samples, True)} update {model.module} differently since optimizer step "
        f"{found.turn - 1}.",
        found.samples,
        culprits,
        evidence,
        "Build the optimizer identically on all ranks, and load or reset its state on all of them.",
        tensors=found.tensors,
        sides=found.sides,
    )


def scaler_differs(recording: Recording, number: int) -> Finding | None:
    """DDP409: the scales of the ranks' GradScalers differ."""
    for turn, samples in by_turn(recording, number, "scale").items():
        scales = {rank: sample.number("scale") for rank, sample in samples.items()}
        apart = split(scales)
        restored = {rank: loaded for rank, loaded in loads(recording, "scaler").items() if loaded and rank in samples}
        if apart.differs and loaded_alone(recording, restored, samples):
            ranks = tuple(sorted(restored))
            return Finding(
                STATE_ON_ONE_RANK,
                f"Only {phrases.ranks(ranks)} restored the GradScaler state: the scales differ.",
                ranks,
                tuple(rank for rank in sorted(samples) if rank not in restored),
                None,
                known((rank, restored[rank][-1].site) for rank in ranks),
                tuple(
                    f"Rank {rank}: scale {scale:.6g}."
                    for rank, scale in sorted(scales.items())[:8]
                    if scale is not None
                ),
                "Load the scaler's state on every rank.",
                certainty="likely",
            )
        if apart.differs:
            common = last_common(by_turn(recording, number, "scale"), turn, samples)
            made = _scalers(recording, samples)
            before = {rank: [sample.number("scale")] for rank, sample in common.items()} or {
                rank: [scaler.init_scale] for rank, scaler in made.items()
            }
            finding = finding_of(
                SCALING_DIFFERS,
                f"The scale of the GradScaler differs between ranks since its update {turn}.",
                samples,
                against_past(scales, before).blamed(apart),
                [f"Rank {rank}: scale {scale:.6g}." for rank, scale in sorted(scales.items())[:8] if scale is not None]
                + [f"Rank {rank}: made with scale {one.init_scale:.6g}." for rank, one in sorted(made.items())[:8]],
                "Let all ranks see the same infinities: synchronise gradients before unscaling, or all_reduce found_inf.",
                sides=apart.sides,
            )
            unlike = split({rank: scaler.init_scale for rank, scaler in made.items()}).differs
            return placed(finding, where(made, (rank for rank, _ in finding.where))) if unlike else finding
    return None


def _scalers(recording: Recording, samples: Mapping[int, Sample]) -> dict[int, ScalerMade]:
    """The GradScalers of these samples, as they were made; none unless that is known of all ranks."""
    made = {
        rank: event
        for rank, sample in samples.items()
        for event in recording.ranks[rank].events(ScalerMade)
        if event.number == sample.number("made")
    }
    return made if made.keys() == samples.keys() else {}
