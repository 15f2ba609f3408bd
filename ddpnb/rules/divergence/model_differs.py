"""Models that differ between ranks: other tensors, another order, other dtypes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ddpnb.recording import phrases
from ddpnb.recording.facts.digests import by_group, members, models_of
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.findings import FindingType
from ddpnb.recording.replicas import Model, TensorSpec
from ddpnb.recording.split import split
from ddpnb.rules.rule import Draft, family, say

MODEL_DIFFERS = FindingType("DDP403", "model-differs", ways_part=True)
PARAMETER_ORDER = FindingType("DDP404", "parameter-order", ways_part=True)

_WORDS = {
    PARAMETER_ORDER: (
        "{who} [registers|register] the parameters of {module} in another order, or with other dtypes, than {usual}.",
        "{who} register the parameters of {module} in different orders, or with different dtypes.",
        "Build the model from the same configuration on all ranks, in the same order: DistributedDataParallel matches "
        "parameters by position, not by name.",
    ),
    MODEL_DIFFERS: (
        "{who} [wraps|wrap] a different {module} than {usual}.",
        "{who} wrap different {module} models.",
        "Build the same model on all ranks: sizes that depend on data (vocabulary, classes) must be agreed on first.",
    ),
}


@family(MODEL_DIFFERS, PARAMETER_ORDER, after=("DDP202",))
def model_differs(snap: Snapshot) -> Iterable[Draft]:
    """The ranks wrap models with different tensors, or with another order or dtype of the same ones."""
    for models in models_of(snap.recording).values():
        yield from _differ({rank: model for rank, model in models.items() if model.wrapper})


def _differ(models: Mapping[int, Model]) -> Iterable[Draft]:
    for replicas in by_group(models):
        yield from _differ_in_group(replicas)


def _differ_in_group(models: Mapping[int, Model]) -> Iterable[Draft]:
    if len(models) < 2 or len({m.wrapper for m in models.values()}) > 1:
        return
    made = {rank: tuple((t.name, t.shape, t.dtype, t.trains) for t in m.tensors) for rank, m in models.items()}
    apart = split(made, len(members(models.values()) - made.keys()))
    usual, *others = apart.sides
    reference = models[usual[0]]
    first = [models[side[0]] for side in others]
    if not first:
        return
    same_shapes = len({str(sorted((t.shape, t.buffer, t.trains) for t in m.tensors)) for m in models.values()}) == 1
    same_names = len({tuple(sorted(t.name for t in m.tensors)) for m in models.values()}) == 1
    shapes = [t.shape for t in reference.tensors]
    in_place = all([t.shape for t in one.tensors] == shapes for one in first)
    names = [t.name for t in reference.tensors]
    dtypes_alone = in_place and all([t.name for t in one.tensors] == names for one in first)
    kind = PARAMETER_ORDER if same_shapes and (same_names or dtypes_alone) else MODEL_DIFFERS
    if kind == MODEL_DIFFERS and same_shapes and in_place:
        return  # other names for the same shapes in the same places: a matter of taste
    found = {side[0]: _differences(reference.tensors, one.tensors) for side, one in zip(others, first, strict=True)}
    told = [text for text, _ in found[others[0][0]]]
    if len(others) > 1:
        by_side = phrases.by_side(others, lambda rank: found[rank][0][0].rstrip("."))
        how = [f"Compared with {phrases.ranks(usual)}, {by_side}."]
    else:
        how = [f"On {phrases.ranks(others[0])}, {text}" for text in told[:4]]
    one, tie, remedy = _WORDS[kind]
    counts = phrases.by_side(
        apart.sides, lambda rank: f"{len(models[rank].parameters)} and {len(models[rank].buffers)}"
    )
    words = {"module": reference.module, "usual": usual}
    yield Draft(
        say(one if apart.culprits else tie, apart.culprits or models, **words),
        apart.culprits,
        remedy,
        models,
        waiting=usual if apart.culprits else (),
        sides=apart.sides,
        evidence=(*how, f"Parameters and buffers: {counts}."),
        kind=kind,
        tensors=tuple(dict.fromkeys(name for one in found.values() for _, name in one if name))[:20],
    )


def _differences(one: tuple[TensorSpec, ...], other: tuple[TensorSpec, ...]) -> list[tuple[str, str]]:
    """In words, with the name of the tensor."""
    found = [
        (f"tensor {place} is {_spec(b)} instead of {_spec(a)}.", b.name)
        for place, (a, b) in enumerate(zip(one, other, strict=False))
        if (a.name, a.shape, a.dtype, a.trains) != (b.name, b.shape, b.dtype, b.trains)
    ]
    longer, what = (other, "extra") if len(other) > len(one) else (one, "missing")
    found += [(f"{_spec(extra)} is {what}.", extra.name) for extra in longer[min(len(one), len(other)) :]]
    return found or [("the tensors differ.", "")]


def _spec(tensor: TensorSpec) -> str:
    text = f"{tensor.name} ({tensor.dtype} {list(tensor.shape)})"
    return text if tensor.trains or tensor.buffer else f"{text[:-1]}, frozen)"
