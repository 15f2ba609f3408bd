"""A tensor on each rank: what is known of its values, where those of two ranks differ, and how a tensor is named."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from ddpnb.recording.codec import JSON

PIECE = 1 << 15  # elements that are read, digested and compared as one part
LOOKED_AT = 1 << 24  # elements of a tensor that are read; of a larger one, parts that lie evenly over it
BINS = 24  # of a histogram
MAX_NAME = 400  # characters

Key = int | str | slice | tuple[Any, ...]
Step = tuple[Literal["attribute", "item"], Key]


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """A tensor on one rank, now.

    ``low``, ``high``, ``mean`` and ``norm`` (Euclidean) are of the finite elements, None if there are none. ``looked_at``:
    elements that were read, of ``elements``. ``counts``: of the finite elements, in bins that all ranks share. ``where``: the
    frame, or the model, that it was found in. ``step``: optimizer steps of that model; None for a tensor of a frame.
    """

    where: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    device: str = ""
    requires_grad: bool = False
    elements: int = 0
    looked_at: int = 0
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    norm: float | None = None
    nans: int = 0
    infs: int = 0
    zeros: int = 0
    step: int | None = None
    counts: tuple[int, ...] = ()


_NOT_ALWAYS = {"where", "step", "counts"}
_LONGEST, _DIMENSIONS = 40, 64


def facts_of(value: Mapping[str, Any]) -> TensorFacts:
    """What a rank reports of a tensor, which may be anything: bounded.

    Raises:
        Exception: it is invalid (``names.UNDECODABLE``).
    """
    if missing := {field.name for field in fields(TensorFacts)} - _NOT_ALWAYS - value.keys():
        raise KeyError(min(missing))
    read: TensorFacts = JSON.read(TensorFacts, value)
    return replace(
        read,
        where=read.where[:MAX_NAME],
        dtype=read.dtype[:_LONGEST],
        device=read.device[:_LONGEST],
        shape=read.shape[:_DIMENSIONS],
    )


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """Where the values of two ranks differ.

    ``elements`` differ of the ``compared`` ones; ``largest``: the largest absolute difference of finite elements; ``first``: the
    index of the first element that differs, and ``values`` that element on both ranks. Elements that are NaN on both ranks are
    equal. ``more``: other parts of the tensor differ too, which were not compared element by element.
    """

    ranks: tuple[int, int]
    elements: int
    compared: int
    largest: float
    first: tuple[int, ...] | None
    values: tuple[float, float] | None
    more: bool = False


def path(name: str) -> tuple[str, tuple[Step, ...]] | None:
    """A variable and the attributes and items that lead from it to a tensor; None if the name is no such path.

    Example:
        >>> path("grads['x'].grad")
        ('grads', (('item', 'x'), ('attribute', 'grad')))
    """
    try:
        node: ast.expr = ast.parse(name.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    steps: list[Step] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            steps.append(("attribute", node.attr))
        elif isinstance(node, ast.Subscript):
            key = _key(node.slice)
            if key is None:
                return None
            steps.append(("item", key))
        else:
            return None
        node = node.value
    return node.id, tuple(reversed(steps))


def _key(node: ast.expr) -> Key | None:
    """An index that is written out: an integer, a text, a slice, or several of them."""
    if isinstance(node, ast.Slice):
        ends = [None if end is None else _whole(end) for end in (node.lower, node.upper, node.step)]
        given = [end for end in (node.lower, node.upper, node.step) if end is not None]
        return slice(*ends) if len(given) == len([end for end in ends if end is not None]) else None
    if isinstance(node, ast.Tuple):
        keys = tuple(_key(one) for one in node.elts)
        return keys if keys and all(isinstance(key, (int, slice)) for key in keys) else None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return _whole(node)


def _whole(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _whole(node.operand)
        return None if value is None else -value
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None
