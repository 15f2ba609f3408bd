"""The first module whose output differs, and the first gradient: between ranks, and from a run with one rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddpnb.bisection.recorded import START, Located
from ddpnb.facts.digests import differing, models_of
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.model.replicas import Sample

MODULE = "module"
ALONE = "one rank alone"
_WHO = 4  # sides that a sentence names


@dataclass(frozen=True, slots=True)
class Pass:
    """The first forward and backward of a model in one process.

    ``batch``: digest of its inputs, 0 if not known; ``outputs``, ``gradients``: digests by name in the order in which they came.
    """

    who: str
    batch: float
    before: Sample | None
    outputs: Mapping[str, float]
    gradients: Mapping[str, float]


def modules(recording: Recording, reference: Recording | None = None) -> Located:
    """The first module whose output differs in the first forward, else the first parameter whose gradient does in the backward.

    Only processes that had the same first batch are compared: with another one every output is another. Gradients are those
    before they are averaged.

    Args:
        recording: of a run with ``protocol.MODULES`` in its environment.
        reference: of such a run of the same program with one rank.

    Example:
        >>> modules(recording).result.first_bad
        'encoder.2 (Linear)'
    """
    number = next(iter(models_of(recording)), None)
    passes = [] if number is None else [_pass(f"rank {r}", one, number) for r, one in sorted(recording.ranks.items())]
    if number is not None and reference is not None and 0 in reference.ranks:
        passes.append(_pass(ALONE, reference.ranks[0], number))
    passes = [one for one in passes if one.outputs]
    if not passes:
        why = "no model was wrapped with DistributedDataParallel, or the run was not made for this"
        return Located(MODULE, missing=f"No outputs of modules were recorded: {why}.")
    batches = [one.batch for one in passes if one.batch]
    batch = max(batches, key=lambda value: (batches.count(value), value == passes[0].batch), default=0.0)
    alike = [one for one in passes if batch and one.batch == batch]
    if not batch:
        return Located(MODULE, missing="The first batches were not compared: they are not all tensors.")
    if len(alike) < 2:
        return Located(
            MODULE,
            missing=f"The first batches differ on {_names([one.who for one in passes])}, so every output does: that is no "
            "cause. Give them the same one: on all ranks, or on rank 0 and in a run with one rank.",
        )
    left_out = [one.who for one in passes if one not in alike]
    notes = [f"Not compared, because of another first batch: {_names(left_out)}."] if left_out else []
    located = _compared(alike)
    return Located(MODULE, located.places, (*located.lines, *notes), facts=located.facts)


def _compared(alike: Sequence[Pass]) -> Located:
    who = _names([one.who for one in alike])
    held = {place: one.before for place, one in enumerate(alike) if one.before is not None}
    if units := differing(held):
        lines = (
            f"The parameters and buffers differ before the first forward: {', '.join(units[:4])}. Compared: {who}.",
        )
        return Located(MODULE, (START, "parameters"), lines)
    last: str = START
    for words, each in (
        ("output that differs in the first forward", [one.outputs for one in alike]),
        ("gradient that differs in the first backward, before it is averaged", [one.gradients for one in alike]),
    ):
        for name in each[0]:
            values = [one.get(name) for one in each]
            if None in values:
                absent = [one.who for one, value in zip(alike, values, strict=True) if value is None]
                lines = (
                    f"{name} is the first that not all have: {_names(absent)} {'has' if len(absent) < 2 else 'have'} none.",
                )
                return Located(MODULE, (last, name), lines, facts={"sides": [[alike[0].who], absent]})
            if len(set(values)) > 1 and 0.0 not in values:
                sides: dict[float | None, list[str]] = {}
                for one, value in zip(alike, values, strict=True):
                    sides.setdefault(value, []).append(one.who)
                shown = " | ".join(_names(side) for side in list(sides.values())[:_WHO])
                equal = f"Equal up to it: {last}." if last != START else "It is the first one of all."
                facts = {"in": "forward" if each[0] is alike[0].outputs else "backward", "sides": list(sides.values())}
                return Located(MODULE, (last, name), (f"{name} is the first {words}: {shown}.", equal), facts=facts)
            last = name
    outputs, gradients = len(alike[0].outputs), len(alike[0].gradients)
    told = f"{outputs} outputs and {gradients} gradients of the first forward and backward are equal: {who}."
    return Located(MODULE, lines=(told,))


def _pass(who: str, record: RankRecord, number: int) -> Pass:
    samples = [sample for sample in record.samples if sample.model == number]
    first = next((one for one in samples if (one.kind, one.turn) == ("forward", 1)), None)
    outputs, gradients = (
        {
            name: value
            for sample in sorted((s for s in samples if s.kind == kind), key=lambda one: one.turn)
            for name, value in sample.values.items()
        }
        for kind in ("outputs", "local")
    )
    return Pass(who, outputs.pop("inputs", 0.0), first, outputs, gradients)


def _names(who: Sequence[str]) -> str:
    return who[0] if len(who) == 1 else f"{', '.join(who[:-1])} and {who[-1]}"
