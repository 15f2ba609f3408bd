"""Models that differ between ranks: other tensors, another order, other dtypes."""

from __future__ import annotations

from collections.abc import Mapping

from ddpnb.facts.digests import split
from ddpnb.facts.places import known
from ddpnb.model import phrases
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.replicas import Model, TensorSpec

MODEL_DIFFERS = FindingType("DDP403", "model-differs", ways_part=True)
PARAMETER_ORDER = FindingType("DDP404", "parameter-order", ways_part=True)


def find(models: Mapping[int, Model]) -> Finding | None:
    """DDP403 or DDP404: the ranks wrap models with different tensors, or with another order or dtype of the same ones."""
    if len(models) < 2 or len({(m.wrapper, m.group) for m in models.values()}) > 1:
        return None
    made = {rank: tuple((t.name, t.shape, t.dtype, t.trains) for t in m.tensors) for rank, m in models.items()}
    apart = split(made)
    if not apart.differs:
        return None
    culprits = apart.culprits
    usual, others = apart.sides[0], apart.sides[1:]
    odd = tuple(sorted(rank for side in others for rank in side))
    reference = models[usual[0]]
    first = {side[0]: models[side[0]] for side in others}
    shapes = {str(sorted((t.shape, t.buffer, t.trains) for t in m.tensors)) for m in models.values()}
    names = {str(sorted(t.name for t in m.tensors)) for m in models.values()}
    dtypes_alone = all(_dtypes_alone(reference, one) for one in first.values())
    kind = PARAMETER_ORDER if len(shapes) == 1 and (len(names) == 1 or dtypes_alone) else MODEL_DIFFERS
    in_place = all([t.shape for t in one.tensors] == [t.shape for t in reference.tensors] for one in first.values())
    if kind == MODEL_DIFFERS and len(shapes) == 1 and in_place:
        return None  # other names for the same shapes in the same places: a matter of taste
    differences = {rank: _first_differences(reference.tensors, one.tensors) for rank, one in first.items()}
    tensors = tuple(dict.fromkeys(name for _, found in differences.values() for name in found))
    what = {
        (
            PARAMETER_ORDER,
            True,
        ): f"{phrases.verb(odd, 'registers', 'register')} the parameters of {reference.module} in a "
        "different order, or with different dtypes, than",
        (MODEL_DIFFERS, True): f"{phrases.verb(odd, 'wraps', 'wrap')} a different {reference.module} than",
        (
            PARAMETER_ORDER,
            False,
        ): f"register the parameters of {reference.module} in different orders, or with different dtypes",
        (MODEL_DIFFERS, False): f"wrap different {reference.module} models",
    }[kind, bool(culprits)]
    told, _ = differences[others[0][0]]
    if len(others) == 1:
        how = told[0] if culprits else f"on {phrases.ranks(odd)}, {told[0]}"
    else:
        each = phrases.by_side(others, lambda rank: differences[rank][0][0].rstrip("."))
        how = f"compared with {phrases.ranks(usual)}, {each}."
    sides = () if culprits else apart.sides
    return Finding(
        kind,
        f"{phrases.ranks(odd, True)} {what} {phrases.ranks(usual)}: {how}"
        if culprits
        else f"{phrases.ranks(models, True)} {what}: {how}",
        culprits,
        usual if culprits else (),
        None,
        known((rank, models[rank].site) for rank in (*odd, *usual)),
        (
            "Parameters and buffers: "
            + phrases.by_side(
                apart.sides, lambda rank: f"{len(models[rank].parameters)} and {len(models[rank].buffers)}"
            )
            + ".",
            *(told[1:4] if len(others) == 1 else ()),
            *phrases.undecided(sides),
        ),
        "Build the model from the same configuration on all ranks, in the same order: DistributedDataParallel matches "
        "parameters by position, not by name."
        if kind == PARAMETER_ORDER
        else "Build the same model on all ranks: sizes that depend on data (vocabulary, classes) must be agreed on first.",
        tensors=tensors[:20],
        sides=sides,
    )


def _dtypes_alone(one: Model, other: Model) -> bool:
    return [(t.name, t.shape) for t in one.tensors] == [(t.name, t.shape) for t in other.tensors]


def _first_differences(one: tuple[TensorSpec, ...], other: tuple[TensorSpec, ...]) -> tuple[list[str], tuple[str, ...]]:
    told, names = [], []
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if (a.name, a.shape, a.dtype, a.trains) != (b.name, b.shape, b.dtype, b.trains):
            told.append(f"number {place} is {_spec(b)} instead of {_spec(a)}.")
            names.append(b.name)
    longer = other if len(other) > len(one) else one
    for extra in longer[min(len(one), len(other)) :]:
        told.append(f"{_spec(extra)} is {'extra' if longer is other else 'missing'}.")
        names.append(extra.name)
    return told or ["the tensors differ."], tuple(names)


def _spec(tensor: TensorSpec) -> str:
    text = f"{tensor.name} ({tensor.dtype} {list(tensor.shape)})"
    return text if tensor.trains or tensor.buffer else f"{text[:-1]}, frozen)"
