"""DDP410: optimizers whose own settings differ, and what each rank did to its own."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from ddpnb.facts.digests import Past, against_past, by_turn, last_common, split
from ddpnb.facts.places import known
from ddpnb.model import phrases
from ddpnb.model.events.base import Event
from ddpnb.model.events.models import OptimizerMade, SchedulerStepped
from ddpnb.model.findings import Certainty, Finding, FindingType
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Model, Sample
from ddpnb.rules.divergence.builder import as_number, finding_of, placed

OPTIMIZER_DIFFERS = FindingType("DDP410", "optimizer-differs")

# Facts of these samples that are no settings.
_OTHERS = frozenset(
    [
        "forwards",
        "synced",
        "backwards",
        "bypass",
        "bypass_site",
        "outstanding",
        "arrived_finite",
        "scheduled",
        "as_reduced",
        "as_left",
        "made",
        "edited",
    ]
)
_Turns = Mapping[int, Mapping[int, Sample]]


def hyper_differ(recording: Recording, number: int, model: Model) -> Finding | None:
    """The first step of which a setting differs between the optimizers of the ranks."""
    turns = by_turn(recording, number, "gradients")
    for turn, samples in turns.items():
        if len(samples) < 2:
            continue
        for name in dict.fromkeys(name for sample in samples.values() for name in sample.facts if name not in _OTHERS):
            if split({rank: sample.facts.get(name) for rank, sample in samples.items()}).differs:
                return _differs(recording, model, turns, turn, name)
    return None


def _differs(recording: Recording, model: Model, turns: _Turns, turn: int, name: str) -> Finding:
    samples = turns[turn]
    values = {rank: sample.facts.get(name) for rank, sample in samples.items()}
    apart = split(values)
    past = _edited(turns, turn, name)
    culprits, certainty = past.blamed(apart), "proven"
    counts = {rank: sample.number("scheduled") or 0.0 for rank, sample in samples.items()}
    scheduled = split(counts).differs and not past.changed
    if scheduled and not culprits:
        culprits, certainty = _out_of_step(turns, turn, counts)
    step = f"optimizer step {turn} of {model.module}"
    told = [
        f"{name} is {as_number(value)} on {phrases.ranks([r for r in values if str(values[r]) == value])}."
        for value in sorted({str(value) for value in values.values()})[:6]
    ]
    made = _made(recording, samples)
    places: Mapping[int, Event] = {}
    if scheduled:
        told += [
            f"Rank {rank}: its schedulers were stepped {n:.0f} times before." for rank, n in sorted(counts.items())[:8]
        ]
        places = _steps_of_schedulers(recording, made)
    elif past.changed:
        told += [
            f"Rank {rank}: neither the constructor of the optimizer nor a scheduler set {name} to {as_number(str(values[rank]))}."
            for rank in past.changed[:8]
            if "edited" in samples[rank].facts
        ]
    elif all(made[rank].settings.get(name) == values[rank] for rank in made):
        places = made
    elif any(counts.values()):
        certainty = "likely"  # by number alone: schedulers that follow a local value have no rank at fault
        told.append("The schedulers of all ranks were stepped equally often, and set it to different values.")
        places = _steps_of_schedulers(recording, made)
    finding = finding_of(
        OPTIMIZER_DIFFERS,
        f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'uses', 'use')} a different {name} than the "
        f"other ranks at {step}."
        if culprits
        else f"{phrases.ranks(values, True)} use different values of {name} at {step}.",
        samples,
        culprits,
        told,
        "Use the same optimizer settings on all ranks, and step schedulers on all of them "
        "(decide by values that all ranks share: reduce the metric first).",
        sides=() if culprits and scheduled else apart.sides,
        certainty=certainty,
    )
    return placed(finding, known((rank, places[rank].site if rank in places else at) for rank, at in finding.where))


def _edited(turns: _Turns, turn: int, name: str) -> Past:
    """The ranks on which something other than torch has changed a setting since the step before."""
    samples = turns[turn]
    before = last_common(turns, turn, samples)
    past = against_past(
        {rank: sample.facts.get(name) for rank, sample in samples.items()},
        {rank: [sample.facts.get(name)] for rank, sample in before.items()},
    )
    edited = {rank: sample.facts["edited"] for rank, sample in samples.items() if "edited" in sample.facts}
    if edited.keys() != samples.keys():  # not recorded
        return past
    changed = (rank for rank, names in edited.items() if name in names and (rank in past.changed or not before))
    return Past(tuple(sorted(changed)), tuple(sorted(samples)))


def _out_of_step(turns: _Turns, turn: int, counts: Mapping[int, float]) -> tuple[tuple[int, ...], Certainty]:
    """Of ranks whose schedulers were stepped unequally often: those that had stepped them regularly and no longer do.

    If there are none, those that did it more often have done what the others did not; which of both was meant is not known.
    """
    paces: dict[int, list[float]] = {}
    for rank in counts:
        seen = [s for t in sorted(turns) if t <= turn and (s := turns[t].get(rank)) is not None]
        paces[rank] = [
            ((after.number("scheduled") or 0.0) - (before.number("scheduled") or 0.0)) / (after.step - before.step)
            for before, after in pairwise(seen)
            if after.step > before.step
        ]
    whole = all(len(pace) > 2 and len(set(pace[:-1])) == 1 and pace[0] > 0 for pace in paces.values())
    left = tuple(rank for rank, pace in sorted(paces.items()) if whole and pace[-1] != pace[0])
    if left and len(left) < len(counts):
        return left, "proven"
    least = min(counts.values())
    return tuple(rank for rank, count in sorted(counts.items()) if count > least), "likely"


def _made(recording: Recording, samples: Mapping[int, Sample]) -> dict[int, OptimizerMade]:
    """The optimizers of these steps, as they were made."""
    return {
        rank: event
        for rank, sample in samples.items()
        for event in recording.ranks[rank].events(OptimizerMade)
        if event.number == sample.number("made")
    }


def _steps_of_schedulers(recording: Recording, made: Mapping[int, OptimizerMade]) -> dict[int, SchedulerStepped]:
    """Where the schedulers of these optimizers were stepped last, as far as the line is recorded."""
    return {
        rank: event
        for rank, optimizer in made.items()
        for event in recording.ranks[rank].events(SchedulerStepped)
        if event.optimizer == optimizer.number
    }
