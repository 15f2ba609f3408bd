"""Optimizers and scalers that differ: their settings, how often they step, their own states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from ddpnb.recording import phrases
from ddpnb.recording.events.models import OptimizerMade, ScalerMade, SchedulerStepped, StateLoaded
from ddpnb.recording.facts.digests import Difference, Past, against_past, last_common
from ddpnb.recording.facts.places import Placed
from ddpnb.recording.facts.replicas import Replicas, Turns
from ddpnb.recording.findings import Certainty, FindingType
from ddpnb.recording.replicas import Sample
from ddpnb.recording.split import split
from ddpnb.rules.divergence.builder import draft_of, either, how_far, loaded_alone, loads
from ddpnb.rules.rule import FEW, Draft, each, say

SCALING_DIFFERS = FindingType("DDP409", "scaling-differs")
OPTIMIZER_DIFFERS = FindingType("DDP410", "optimizer-differs")
STEP_TOGETHER = "Step the optimizer on all ranks or on none: decide together (reduce the flag first)."
STATE_ON_ONE_RANK = FindingType("DDP605", "state-on-one-rank", ways_part=True)

Made = TypeVar("Made", OptimizerMade, ScalerMade)


def settings_differ(own: Replicas) -> Draft | None:
    """DDP410: the first step of which a setting differs between the optimizers of the ranks."""
    for turn, samples in own.turns("gradients").items():
        settings = {rank: sample.settings for rank, sample in samples.items()}
        for name in dict.fromkeys(name for own_settings in settings.values() for name in own_settings):
            if own.split({rank: own_settings.get(name) for rank, own_settings in settings.items()}).differs:
                return _other_setting(own, turn, samples, name)
    return None


def _other_setting(own: Replicas, turn: int, samples: Mapping[int, Sample], name: str) -> Draft:
    turns = own.turns("gradients")
    values = {rank: sample.settings.get(name) for rank, sample in samples.items()}
    apart, past = own.split(values), _set_by_the_script(turns, turn, name)
    culprits, certainty = past.blamed(apart), "proven"
    counts = {rank: sample.scheduled or 0.0 for rank, sample in samples.items()}
    scheduled = split(counts).differs and not past.changed
    if scheduled and not culprits:
        culprits, certainty = _out_of_step(turns, turn, counts)
    told = [
        f"{name} is {_as_number(value)} on {phrases.ranks([r for r in values if str(values[r]) == value])}."
        for value in sorted({str(value) for value in values.values()})[:6]
    ]
    made = _made(own, samples, OptimizerMade)
    places: Mapping[int, Placed] = {}
    if scheduled:
        told += each(sorted(counts), lambda r: f"Rank {r}: its schedulers were stepped {counts[r]:.0f} times before.")
        places = _steps_of_schedulers(own, made)
    elif past.changed:
        told += [
            f"Rank {rank}: neither the constructor of the optimizer nor a scheduler set {name} to {_as_number(str(values[rank]))}."
            for rank in past.changed[:8]
            if samples[rank].edited is not None
        ]
    elif all(made[rank].settings.get(name) == values[rank] for rank in made):
        places = made
    elif any(counts.values()):
        certainty = "likely"  # by number alone: schedulers that follow a local value have no rank at fault
        told.append("The schedulers of all ranks were stepped equally often, and set it to different values.")
        places = _steps_of_schedulers(own, made)
    return draft_of(
        OPTIMIZER_DIFFERS,
        either(
            "{who} [uses|use] a different {name} than the other ranks at optimizer step {turn} of {module}.",
            "{who} use different values of {name} at optimizer step {turn} of {module}.",
            culprits,
            values,
            name=name,
            turn=turn,
            module=own.name,
        ),
        samples,
        culprits,
        told,
        "Use the same optimizer settings on all ranks, and step schedulers on all of them "
        "(decide by values that all ranks share: reduce the metric first).",
        sides=() if culprits and scheduled else apart.sides,
        certainty=certainty,
        at={**samples, **places},
    )


def _as_number(text: str) -> str:
    try:
        return f"{float(text):.6g}"
    except ValueError:
        return text


def _set_by_the_script(turns: Turns, turn: int, name: str) -> Past:
    """The ranks on which something other than torch has changed a setting since the step before."""
    samples = turns[turn]
    before = last_common(turns, turn, samples)
    past = against_past(
        {rank: sample.settings.get(name) for rank, sample in samples.items()},
        {rank: [sample.settings.get(name)] for rank, sample in before.items()},
    )
    edited = {rank: names for rank, sample in samples.items() if (names := sample.edited) is not None}
    if edited.keys() != samples.keys():  # not recorded
        return past
    changed = (rank for rank, names in edited.items() if name in names and (rank in past.changed or not before))
    return Past(tuple(sorted(changed)), tuple(sorted(samples)))


def _out_of_step(turns: Turns, turn: int, counts: Mapping[int, float]) -> tuple[tuple[int, ...], Certainty]:
    """Of ranks whose schedulers were stepped unequally often: those that had stepped them regularly and no longer do.

    If there are none, those that did it more often have done what the others did not; which of both was meant is not known.
    """
    left: list[int] = []
    for rank in sorted(counts):
        seen = [looks[rank] for number, looks in turns.items() if number <= turn and rank in looks]
        pace = [
            ((after.scheduled or 0.0) - (before.scheduled or 0.0)) / (after.step - before.step)
            for before, after in pairwise(seen)
            if after.step > before.step
        ]
        if len(pace) < 3 or len(set(pace[:-1])) > 1 or pace[0] <= 0:
            left.clear()
            break
        left += [rank] if pace[-1] != pace[0] else []
    if left and len(left) < len(counts):
        return tuple(left), "proven"
    least = min(counts.values())
    return tuple(rank for rank, count in sorted(counts.items()) if count > least), "likely"


def _made(own: Replicas, samples: Mapping[int, Sample], kind: type[Made]) -> dict[int, Made]:
    """The optimizers or scalers of these samples, as they were made."""
    return {
        rank: event
        for rank, sample in samples.items()
        for event in own.ranks[rank].events(kind)
        if event.number == sample.made
    }


def _steps_of_schedulers(own: Replicas, made: Mapping[int, OptimizerMade]) -> dict[int, SchedulerStepped]:
    """Where the schedulers of these optimizers were stepped last, as far as the line is recorded."""
    return {
        rank: event
        for rank, optimizer in made.items()
        for event in own.ranks[rank].events(SchedulerStepped)
        if event.optimizer == optimizer.number
    }


def steps_differ(own: Replicas, found: Difference, steps: Mapping[int, int]) -> Draft:
    """DDP410: ranks have stepped less often by a forward."""
    apart = own.split(steps)
    culprits = _pace(own, found).blamed(apart)
    return draft_of(
        OPTIMIZER_DIFFERS,
        either(
            "{who} [has|have] run a different number of optimizer steps than the other ranks {then}.",
            "{who} have run different numbers of optimizer steps {then}.",
            culprits,
            steps,
            then=f"by forward {found.turn} of {own.name}",
        ),
        found.samples,
        culprits,
        [
            *each(
                sorted(steps), lambda rank: f"Rank {rank}: {steps[rank]} optimizer steps before forward {found.turn}."
            ),
            *how_far(found),
        ],
        STEP_TOGETHER,
        tensors=found.tensors,
        sides=apart.sides,
    )


def passes_differ(own: Replicas, found: Difference) -> Draft | None:
    """DDP410: ranks ran other numbers of backward passes since the optimizer step before: some left out a step."""
    before = 0 if found.kind == "gradients" else 1
    steps = {rank: sample.step - before for rank, sample in found.samples.items()}
    taken = {
        rank: one.backwards
        for rank, step in steps.items()
        for one in own.of(rank, "gradients")
        if one.step == step and one.backwards is not None
    }
    apart = own.split(taken)
    if taken.keys() != steps.keys() or not apart.differs:
        return None
    step = max(steps.values()) + 1
    return draft_of(
        OPTIMIZER_DIFFERS,
        either(
            "{who} took optimizer step {step} of {name} after another number of backward passes than the other ranks.",
            "{who} took optimizer step {step} of {name} after different numbers of backward passes.",
            apart.culprits,
            taken,
            step=step,
            name=own.name,
        ),
        found.samples,
        apart.culprits,
        [
            *each(
                sorted(taken),
                lambda rank: (
                    f"Rank {rank} ran {taken[rank]:.0f} backward {'pass' if taken[rank] == 1 else 'passes'} since the step before."
                ),
            ),
            *how_far(found),
        ],
        STEP_TOGETHER,
        tensors=found.tensors,
        sides=apart.sides,
    )


def _pace(own: Replicas, found: Difference) -> Past:
    """Which ranks ran a different number of optimizer steps before this forward than before each earlier one."""
    turns = own.turns("forward")
    made: dict[int, list[int]] = {}
    for rank in found.samples:
        steps = [turns[turn][rank].step for turn in range(1, found.turn + 1) if rank in turns.get(turn, {})]
        whole = len(steps) == found.turn and len(steps) > 2
        made[rank] = [after - before for before, after in pairwise(steps)] if whole else []
    return against_past(
        {rank: steps[-1] if steps else None for rank, steps in made.items()},
        {rank: steps[:-1] for rank, steps in made.items()},
    )


def other_update(own: Replicas, found: Difference) -> Draft:
    """DDP410 or DDP605: the same parameters and gradients, but different parameters after the step."""
    step = found.turn - 1
    evidence = [
        f"Parameters and gradients agreed before optimizer step {step}; after it {', '.join(found.tensors[:6])} differ: "
        "the optimizer states differ.",
        *how_far(found),
    ]
    restored = loads(own.recording, "optimizer", found.samples)
    if loaded_alone(own.recording, restored, found.samples):
        told = f"the optimizer state: the replicas diverge at optimizer step {step}."
        remedy = "Load the optimizer's (and the scaler's) state on every rank."
        return replace(_restored_alone(restored, found.samples, told, evidence, remedy), tensors=found.tensors[:20])
    culprits = found.split.culprits
    return draft_of(
        OPTIMIZER_DIFFERS,
        either(
            "{who} [updates|update] {module} differently from the other ranks since optimizer step {step}.",
            "{who} update {module} differently since optimizer step {step}.",
            culprits,
            found.samples,
            module=own.name,
            step=step,
        ),
        found.samples,
        culprits,
        evidence,
        "Build the optimizer identically on all ranks, and load or reset its state on all of them.",
        tensors=found.tensors,
        sides=found.sides,
    )


def _restored_alone(
    restored: Mapping[int, StateLoaded], samples: Mapping[int, Sample], what: str, evidence: list[str], remedy: str
) -> Draft:
    """DDP605. Whether all ranks or none should have restored it is not known."""
    return Draft(
        say("Only {ranks} restored {what}", ranks=tuple(restored), what=what),
        tuple(restored),
        remedy,
        restored,
        waiting=phrases.besides(sorted(samples), restored),
        evidence=evidence,
        kind=STATE_ON_ONE_RANK,
        certainty="likely",
    )


def scales_differ(own: Replicas) -> Draft | None:
    """DDP409 or DDP605: the scales of the ranks' GradScalers differ."""
    turns = own.turns("scale")
    for turn, samples in turns.items():
        scales = {rank: sample.scale for rank, sample in sorted(samples.items())}
        apart = own.split(scales)
        if not apart.differs:
            continue
        told = [f"Rank {rank}: scale {scale:.6g}." for rank, scale in list(scales.items())[:FEW] if scale is not None]
        restored = {rank: load for rank, load in loads(own.recording, "scaler").items() if rank in samples}
        if loaded_alone(own.recording, restored, samples):
            what = "the GradScaler state: the scales differ."
            return _restored_alone(restored, samples, what, told, "Load the scaler's state on every rank.")
        made = _made(own, samples, ScalerMade)
        made = made if made.keys() == samples.keys() else {}
        common = last_common(turns, turn, samples)
        before = {rank: [sample.scale] for rank, sample in common.items()} or {
            rank: [scaler.init_scale] for rank, scaler in made.items()
        }
        unlike = split({rank: scaler.init_scale for rank, scaler in made.items()}).differs
        return draft_of(
            SCALING_DIFFERS,
            f"The scale of the GradScaler differs between ranks since its update {turn}.",
            samples,
            against_past(scales, before).blamed(apart),
            [
                *told,
                *(f"Rank {rank}: made with scale {one.init_scale:.6g}." for rank, one in sorted(made.items())[:FEW]),
            ],
            "Let all ranks see the same infinities: synchronise gradients before unscaling, or all_reduce found_inf.",
            sides=apart.sides,
            at=made if unlike else samples,
        )
    return None
