"""The first optimizer step at which replicas differ, from the digests of a recording.

It is searched without probes: the recording bounds it from both sides. Where it leaves several steps, it says between which
another run has to look at each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.facts.digests import (
    Difference,
    by_turn,
    comparable,
    differing,
    extent,
    first_difference,
    models_of,
    units_of,
)
from ddpnb.recording.recording import Recording
from ddpnb.recording.replicas import Model, Sample
from ddpnb.recording.samples import tensor_name
from ddpnb.studies.bisection.search import SearchResult
from ddpnb.studies.bisection.space import START, Value

STEP = "optimizer step"
_ORDER = {"updated": -1, "forward": 0, "gradients": 1}  # of the samples with the same number of steps before them
_AT = {
    "updated": "after its update",
    "forward": "in its forward, before any gradient was computed",
    "gradients": "in the gradients, just before its update",
}
_TENSORS = 4  # that a sentence names
_SIDES = 4  # that a sentence names
_CHECK = "world.compare() compares models that live; a finding may say more."


@dataclass(frozen=True, slots=True)
class Located:
    """Where replicas first differ, as far as a recording says.

    ``places``: from the last step at which they do not to the first at which they do; two if nothing is left between them,
    none if they never do. ``lines``: what was recorded, in sentences. ``missing``: why the recording does not say it;
    empty: it does. ``looks``: the first and last number of steps between which another run has to look at each; None: that
    would not help. ``facts``: for JSON.
    """

    places: tuple[Value, ...] = ()
    lines: tuple[str, ...] = ()
    missing: str = ""
    looks: tuple[int, int] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def result(self) -> SearchResult:
        """As the result of a search."""
        if len(self.places) == 2 and not self.missing:
            return SearchResult("found", first_bad=self.places[1], last_good=self.places[0])
        if self.places or self.missing:
            return SearchResult("undecided", candidates=self.places[1:])
        return SearchResult("nothing fails")


def steps(recording: Recording) -> Located:
    """The first optimizer step at which the parameters or gradients of replicas differ.

    A step begins with the forward after the step before, and ends with its update. Steps are counted from 1; 0 is the wrapping.

    Example:
        >>> steps(recording).result.first_bad
        6
    """
    differences: list[tuple[int, Located]] = []  # when each was recorded
    compared, reasons = False, list[str]()
    for number, models in models_of(recording).items():
        model = models[min(models)]
        if len(models) < 2:
            reasons.append(f"only rank {min(models)} has a model {model.module}")
        elif not comparable(models):
            reasons.append(f"the ranks hold different tensors of {model.module}")
        else:
            apart = {tensor.name for tensor in model.tensors if tensor.buffer or tensor.ignored}
            units = [unit for unit in units_of(recording, number) if tensor_name(unit) not in apart]
            compared = compared or bool(_moments(recording, number))
            if (first := first_difference(recording, number, names=units)) is not None:
                differences.append(
                    (min(sample.at_ns for sample in first.samples.values()), _located(recording, model, first, units))
                )
    if differences:
        return min(differences, key=lambda one: one[0])[1]
    if compared:
        last = max((record.steps for record in recording.ranks.values()), default=0)
        return Located(lines=(f"The replicas were equal wherever they were looked at, in {last} optimizer steps.",))
    why = "; ".join(reasons[:3]) or "no model was wrapped with DistributedDataParallel, and no optimizer made a step"
    if any(model.options.get("sharded") for models in models_of(recording).values() for model in models.values()):
        why = "the parameters are sharded: no two ranks hold the same"
    return Located(missing=f"No digests of two ranks can be compared: {why}. {_CHECK}")


def _located(recording: Recording, model: Model, first: Difference, units: Sequence[str]) -> Located:
    """The first recorded difference of a model's replicas, and the last step before it after which all of it was equal."""
    done = _steps(first.samples)
    step = done + (first.kind != "updated")  # of the difference, from 1; 0: when the model was wrapped
    agreed = _agreed(recording, model.number, first, units)
    new = first.turn == 1 and not any(
        sample.model == model.number and sample.kind in _ORDER and sample.at_ns < there.at_ns
        for rank, there in first.samples.items()
        for sample in recording.ranks[rank].samples
    )  # nothing was recorded of this model before the difference, so that there is nothing to look for
    exact = new or (agreed is not None and step - agreed <= 1)
    gradients = (
        held for moment, held in _moments(recording, model.number) if moment == (done - 1, _ORDER["gradients"])
    )
    gradients_agreed = first.kind == "updated" and any(not differing(held, first.units) for held in gradients)

    tensors = ", ".join(first.tensors[:_TENSORS]) + (" and others" if len(first.tensors) > _TENSORS else "")
    name = model.module or "the model"
    when = (
        f"{'first ' if exact else ''}at optimizer step {step}, {_AT[first.kind]}" if step else "when they are wrapped"
    )
    lines = [f"The replicas of {name} differ {when}: {tensors}."]
    if agreed is not None:
        lines.append(
            f"After step {agreed} all of their parameters were equal." if agreed else "When wrapped they were equal."
        )
    elif new and step:
        lines.append("Nothing of them was recorded before that.")
    lines += ["The gradients just before it were equal."] if gradients_agreed else []
    sides = " | ".join(phrases.ranks(side) for side in first.sides[:_SIDES])
    lines.append(f"By what they hold: {sides}{' | ...' if len(first.sides) > _SIDES else ''}.")
    norms = next((norms for unit in first.units if (norms := extent(first.samples, unit))), "")
    lines += [f"{first.tensors[0]}: norm {norms}."] if norms else []
    sites = [(rank, sample.site) for rank, sample in sorted(first.samples.items()) if sample.site != NO_SITE]
    there = [f"{phrases.ranks(ranks)} at {site}" for ranks, site in phrases.by_place(sites)]
    lines += [f"There: {', '.join(there[:_SIDES])}."] if there else []
    facts = {
        "in": {"updated": "update"}.get(first.kind, first.kind),
        "tensors": list(first.tensors[:20]),
        "sides": [list(side) for side in first.sides],
        "pair": [side[0] for side in first.sides[:2]],
        "where": [
            {"rank": rank, "file": site.file, "line": site.line, "function": site.function} for rank, site in sites
        ],
    }
    before: tuple[Value, ...] = (START,) if new or agreed is None else ()
    places = (*before, *(() if new else range(agreed or 0, step)), step)
    return Located(places, tuple(lines), looks=None if exact else (agreed or 0, step), facts=facts)


def _agreed(recording: Recording, model: int, first: Difference, units: Sequence[str]) -> int | None:
    """After which step before the difference all parts were last seen equal; None: that is not recorded."""
    end = _steps(first.samples), _ORDER[first.kind]
    equal: dict[str, int] = {}  # part -> after which step it was last equal
    for moment, held in _moments(recording, model):
        alike = len({sample.step for sample in held.values()}) == 1 and held.keys() >= first.samples.keys()
        if moment < end and moment[1] < 1 and alike and not differing(held, units):
            equal.update({unit: moment[0] for unit in units if all(unit in one.digests for one in held.values())})
    return min(equal.values()) if units and len(equal) == len(units) else None


def _moments(recording: Recording, model: int) -> list[tuple[tuple[int, int], dict[int, Sample]]]:
    """Moments at which at least two ranks have digests of a model: when, and their samples, in the order of training."""
    moments: list[tuple[tuple[int, int], dict[int, Sample]]] = []
    for kind, order in _ORDER.items():
        for samples in by_turn(recording, model, kind).values():
            held = {rank: sample for rank, sample in samples.items() if sample.digests}
            if len(held) > 1:
                moments.append(((_steps(held), order), held))
    return sorted(moments, key=lambda one: one[0])


def _steps(samples: Mapping[int, Sample]) -> int:
    return min(sample.step for sample in samples.values())
