"""Optimizers that differ: their settings, how often they step, their own states."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ddpnb.analysis import phrases
from ddpnb.analysis.silent.drift import Difference, by_turn, minority
from ddpnb.analysis.silent.telling import as_number, finding_of, how_far, known, loads, site_of
from ddpnb.analysis.source import suspects
from ddpnb.model.calls import Site
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Model, Sample

# A scale to begin with that is no plain number.
_STARTS_APART = re.compile(r"GradScaler\(.*init_scale=(?![\d.e*+\- ]+[,)])")


def hyper_differ(recording: Recording, number: int, model: Model) -> Finding | None:
    """DDP410: the optimizers' own settings differ."""
    skip = {"forwards", "synced", "backwards", "bypass", "bypass_site", "outstanding", "arrived_finite"}
    for turn, samples in by_turn(recording, number, "gradients").items():
        if len(samples) < 2:
            continue
        names = dict.fromkeys(name for sample in samples.values() for name in sample.facts if name not in skip)
        for name in names:
            values = {rank: sample.facts.get(name) for rank, sample in samples.items()}
            culprits = minority(values)
            if culprits:
                culprits = _changed(recording, number, turn, name, samples, culprits)
                told = sorted({str(value): None for value in values.values()})
                return finding_of(
                    recording,
                    "DDP410",
                    f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'takes', 'take')} optimizer step {turn} of "
                    f"{model.module} with another {name} than the others.",
                    samples,
                    culprits,
                    [
                        f"{name} is {as_number(value)} on {phrases.ranks([r for r in values if str(values[r]) == value])}."
                        for value in told[:6]
                    ],
                    "Give the optimizer the same settings on all ranks, and step schedulers on all ranks alike "
                    "(decide by values that all ranks share: reduce the metric first).",
                    suspects.OPTIMIZER,
                    wanted=_SETS if name == "lr" else None,
                )
    return None


def _changed(
    recording: Recording, number: int, turn: int, name: str, samples: Mapping[int, Sample], culprits: tuple[int, ...]
) -> tuple[int, ...]:
    """With as many ranks on either side, those whose setting has changed since the step before."""
    before = by_turn(recording, number, "gradients").get(turn - 1, {})
    changed = tuple(
        rank
        for rank in sorted(samples)
        if rank in before and before[rank].facts.get(name) != samples[rank].facts.get(name)
    )
    return changed if 2 * len(culprits) == len(samples) == 2 * len(changed) else culprits


#: what sets a learning rate: a scheduler may do so by a number that is the rank's own
_SETS = re.compile(r"sched\w*\.step\(|(?<!get_)\b(?:set|adjust|update|change)\w*_(?:lr|learning_rate)\(|\[.lr.\] \W?=")


def steps_differ(recording: Recording, model: Model, found: Difference, steps: dict[int, int]) -> Finding:
    culprits = minority(steps)
    return finding_of(
        recording,
        "DDP410",
        f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'has', 'have')} made another number of optimizer steps than the "
        f"others by forward {found.turn} of {model.module}.",
        found.samples,
        culprits,
        [
            f"Rank {rank}: {count} optimizer steps before forward {found.turn}."
            for rank, count in sorted(steps.items())[:8]
        ]
        + how_far(found),
        "Step the optimizer on all ranks or on none: decide together (reduce the flag first).",
        suspects.OPTIMIZER,
        tensors=found.tensors,
        wanted=_STEP,
    )


_STEP = re.compile(r"\bopt\w*\.step\(|\.optimizer\.step\(")


def other_update(recording: Recording, model: Model, found: Difference) -> Finding:
    """DDP410 or DDP605: the same parameters and gradients, yet other parameters after the step."""
    restored = {
        rank: [p for p in phases if p.began_ns <= found.samples[rank].at_ns]
        for rank, phases in loads(recording, "optimizer").items()
        if rank in found.samples
    }
    loaders = tuple(rank for rank, phases in sorted(restored.items()) if phases)
    evidence = [
        f"Parameters and gradients agreed before optimizer step {found.turn - 1}; after it {', '.join(found.tensors[:6])} differ: "
        "the optimizers' own states are not the same.",
        *how_far(found),
    ]
    if loaders and len(loaders) < len(found.samples):
        return Finding(
            "DDP605",
            f"{phrases.ranks(loaders, True)} restored the state of the optimizer, the others did not: the replicas part at "
            f"optimizer step {found.turn - 1}.",
            loaders,
            tuple(rank for rank in sorted(found.samples) if rank not in loaders),
            None,
            known(tuple((rank, site_of(restored[rank][-1])) for rank in loaders)),
            tuple(evidence),
            "Load the optimizer's (and the scaler's) state on every rank.",
            tensors=found.tensors[:20],
        )
    return finding_of(
        recording,
        "DDP410",
        f"The optimizer of {phrases.ranks(found.odd)} changes {model.module} otherwise than that of the others, from step "
        f"{found.turn - 1} on.",
        found.samples,
        found.odd,
        evidence,
        "Build the optimizer alike on all ranks, and load or reset its state on all of them.",
        suspects.OPTIMIZER,
        tensors=found.tensors,
    )


def scaler_differs(recording: Recording, number: int) -> Finding | None:
    """DDP409: a GradScaler per rank whose scales have parted."""
    for turn, samples in by_turn(recording, number, "scale").items():
        scales = {rank: sample.number("scale") for rank, sample in samples.items()}
        culprits = minority(scales)
        restored = {rank: phases for rank, phases in loads(recording, "scaler").items() if phases and rank in samples}
        if culprits and 0 < len(restored) < len(samples):
            ranks = tuple(sorted(restored))
            return Finding(
                "DDP605",
                f"{phrases.ranks(ranks, True)} restored the state of the GradScaler, the others did not: their scales differ.",
                ranks,
                tuple(rank for rank in sorted(samples) if rank not in restored),
                None,
                tuple(
                    (r, Site.from_json(dict(restored[r][-1].facts))) for r in ranks if "file" in restored[r][-1].facts
                ),
                tuple(
                    f"Rank {rank}: scale {scale:.6g}."
                    for rank, scale in sorted(scales.items())[:8]
                    if scale is not None
                ),
                "Load the scaler's state on every rank.",
            )
        if culprits:
            return finding_of(
                recording,
                "DDP409",
                f"The scale of the GradScaler differs between ranks since its update {turn}.",
                samples,
                culprits,
                [f"Rank {rank}: scale {scale:.6g}." for rank, scale in sorted(scales.items())[:8] if scale is not None],
                "Let all ranks see the same infinities: synchronise gradients before unscaling, or all_reduce found_inf.",
                suspects.NONE,
                wanted=_STARTS_APART if turn == 1 else None,
            )
    return None
