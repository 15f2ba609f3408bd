"""The first optimizer step at which replicas differ, from the digests of a recording."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ddpnb.bisection.recorded import START, Located, at_lines, in_sides, pair_of, sites_to_json
from ddpnb.facts.digests import (
    Difference,
    by_turn,
    comparable,
    differing,
    extent,
    first_difference,
    models_of,
    units_of,
)
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Model, Sample
from ddpnb.model.samples import tensor_name

STEP = "optimizer step"
_ORDER = {"updated": -1, "forward": 0, "gradients": 1}  # of the samples with the same number of steps before them
_AT = {
    "updated": "after its update",
    "forward": "in its forward, before any gradient was computed",
    "gradients": "in the gradients, just before its update",
}
_TENSORS = 4  # that a sentence names
_CHECK = "world.compare() compares models that live; a finding may say more."


@dataclass(frozen=True, slots=True)
class Bound:
    """The first recorded difference of a model's replicas, and the last moment before it at which all of it was equal.

    ``agreed``: the samples of that moment by rank, none if there is no such moment. ``complete``: nothing was recorded of this
    model before the difference, so that there is nothing to look for. ``gradients_agreed``: those of the same step were equal.
    """

    model: Model
    found: Difference
    agreed: Mapping[int, Sample]
    complete: bool
    gradients_agreed: bool

    @property
    def step(self) -> int:
        """The step of the difference, from 1; 0: when the model was wrapped."""
        return _steps(self.found.samples) + (self.found.kind != "updated")

    @property
    def agreed_step(self) -> int | None:
        """After which step they were equal; None: that is not recorded."""
        return _steps(self.agreed) if self.agreed else None

    @property
    def exact(self) -> bool:
        """Whether no step lies between the two."""
        return self.complete or (self.agreed_step is not None and self.step - self.agreed_step <= 1)

    @property
    def looks(self) -> tuple[int, int] | None:
        """Between which numbers of steps another run has to look at each; None: it knows no more."""
        return None if self.exact else (self.agreed_step or 0, self.step)


def steps(recording: Recording) -> Located:
    """The first optimizer step at which the parameters or gradients of replicas differ.

    A step begins with the forward after the step before, and ends with its update. Steps are counted from 1; 0 is the wrapping.

    Example:
        >>> steps(recording).result.first_bad
        6
    """
    bound = bound_of(recording)
    if isinstance(bound, str):
        return Located(STEP, missing=bound)
    if bound is None:
        last = max((record.steps for record in recording.ranks.values()), default=0)
        return Located(
            STEP, lines=(f"The replicas were equal wherever they were looked at, in {last} optimizer steps.",)
        )
    found, agreed = bound.found, bound.agreed_step
    first: tuple[int | str, ...] = (START,) if agreed is None else ()
    between = range(0 if agreed is None else agreed, bound.step)
    places = (START, bound.step) if bound.complete else (*first, *between, bound.step)
    return Located(STEP, places, tuple(lines_of(bound)), looks=bound.looks, facts=facts_of(found))


def facts_of(found: Difference) -> dict[str, object]:
    """A difference for JSON."""
    pair = pair_of(found.sides)
    return {
        "in": {"updated": "update"}.get(found.kind, found.kind),
        "tensors": list(found.tensors[:20]),
        "sides": [list(side) for side in found.sides],
        "pair": list(pair) if pair is not None else None,
        "where": sites_to_json({rank: sample.site for rank, sample in found.samples.items()}),
    }


def bound_of(recording: Recording) -> Bound | str | None:
    """The earliest difference of any model; None: all were equal; a text: why it is not known."""
    bounds: list[Bound] = []
    compared, reasons = 0, list[str]()
    for number, models in models_of(recording).items():
        model = models[min(models)]
        if len(models) < 2:
            reasons.append(f"only rank {min(models)} has a model {model.module}")
        elif not comparable(models):
            reasons.append(f"the ranks hold different tensors of {model.module}")
        else:
            units = _parameters(recording, model)
            found = first_difference(recording, number, names=units)
            compared += sum(1 for _ in _moments(recording, number))
            if found is not None:
                bounds.append(_bound(recording, model, found, units))
    if bounds:
        return min(bounds, key=lambda one: min(sample.at_ns for sample in one.found.samples.values()))
    if compared:
        return None
    why = "; ".join(reasons[:3]) or "no model was wrapped with DistributedDataParallel, and no optimizer made a step"
    if any(model.options.get("sharded") for models in models_of(recording).values() for model in models.values()):
        why = "the parameters are sharded: no two ranks hold the same"
    return f"No digests of two ranks can be compared: {why}. {_CHECK}"


def _parameters(recording: Recording, model: Model) -> list[str]:
    """The parts of parameters that should be equal."""
    apart = {tensor.name for tensor in model.tensors if tensor.buffer or tensor.ignored}
    return [unit for unit in units_of(recording, model.number) if tensor_name(unit) not in apart]


def _moments(recording: Recording, number: int) -> Iterator[tuple[tuple[int, int], dict[int, Sample]]]:
    """Moments at which at least two ranks have digests of a model: when, and their samples."""
    for kind, order in _ORDER.items():
        for samples in by_turn(recording, number, kind).values():
            held = {rank: sample for rank, sample in samples.items() if sample.digests}
            if len(held) > 1:
                yield (_steps(held), order), held


def _bound(recording: Recording, model: Model, found: Difference, units: Sequence[str]) -> Bound:
    when = _steps(found.samples), _ORDER[found.kind]
    before = sorted(
        ((moment, held) for moment, held in _moments(recording, model.number) if moment < when and moment[1] < 1),
        key=lambda one: one[0],
    )
    equal: dict[str, int] = {}  # part -> the last of these moments at which it was equal
    for place, (_, held) in enumerate(before):
        alike = len({sample.step for sample in held.values()}) == 1 and held.keys() >= found.samples.keys()
        for unit in units if alike and not differing(held, units) else ():
            if all(unit in sample.digests for sample in held.values()):
                equal[unit] = place
    agreed = before[min(equal.values())][1] if units and len(equal) == len(units) else {}
    nothing = not any(
        sample.model == model.number and sample.kind in _ORDER and sample.at_ns < there.at_ns
        for rank, there in found.samples.items()
        for sample in recording.ranks[rank].samples
    )
    gradients = (
        held for moment, held in _moments(recording, model.number) if moment == (when[0] - 1, _ORDER["gradients"])
    )
    return Bound(
        model, found, agreed, found.turn == 1 and nothing, any(not differing(held, found.units) for held in gradients)
    )


def _steps(samples: Mapping[int, Sample]) -> int:
    return min(sample.step for sample in samples.values())


def lines_of(bound: Bound) -> Iterator[str]:
    """A difference in sentences."""
    found, agreed = bound.found, bound.agreed_step
    tensors = ", ".join(found.tensors[:_TENSORS]) + (" and others" if len(found.tensors) > _TENSORS else "")
    name = bound.model.module or "the model"
    if bound.step == 0:
        yield f"The replicas of {name} differ when they are wrapped: {tensors}."
    elif bound.exact:
        yield f"The replicas of {name} differ first at optimizer step {bound.step}, {_AT[found.kind]}: {tensors}."
    else:
        yield f"The replicas of {name} differ at optimizer step {bound.step}, {_AT[found.kind]}: {tensors}."
    if agreed is not None:
        yield f"After step {agreed} all of their parameters were equal." if agreed else "When wrapped they were equal."
    elif bound.complete and bound.step:
        yield "Nothing of them was recorded before that."
    if found.kind == "updated" and bound.gradients_agreed:
        yield "The gradients just before it were equal."
    yield f"By what they hold: {in_sides(found.sides)}."
    told = next((told for unit in found.units if (told := extent(found.samples, unit))), "")
    if told:
        yield f"{found.tensors[0]}: norm {told}."
    if lines := at_lines({rank: sample.site for rank, sample in found.samples.items()}):
        yield f"There: {lines}."
