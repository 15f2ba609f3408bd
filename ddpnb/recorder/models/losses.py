"""The value of a loss, and how it was reduced and scaled, read from the end of its graph.

What the graph keeps is read as it lies there: to unpack it could run code of the script's (a
checkpointed part would be computed again), or fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_NODES = 6
_GRAPH, _NAMES = 20_000, 64
_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def loss_facts(loss: torch.Tensor) -> tuple[str, list[float]]:
    """(the operations from the loss inwards, as text; the loss and the factors it was scaled by).

    Only factors that are plain numbers on the CPU are read: nothing here waits for a device.
    """
    values: list[float] = []
    if (value := _scalar(loss)) is not None:
        values.append(value)
    parts: list[str] = []
    node = loss.grad_fn
    while node is not None and len(parts) < _NODES:
        name, inputs = type(node).__name__, [previous for previous, _ in node.next_functions]
        inner = [previous for previous in inputs if previous is not None]  # a constant has no node
        if name.startswith(("MulBackward", "DivBackward")) and len(inner) == 1:
            factor = _factor(node, inputs, name.startswith("Div"))
            if factor is None:
                parts.append(_short(name))
            elif values and len(values) < 4:
                values.append(factor)
                parts.append("scaled")
        elif (reduction := getattr(node, "_saved_reduction", None)) is not None:
            parts.append(f"{_short(name)} {_REDUCTIONS.get(reduction, '?')}")
            break
        elif name.startswith(("SumBackward", "MeanBackward")):
            parts.append(_short(name))
            break
        elif not name.startswith(("_DDPSink", "View", "Squeeze", "ToCopy", "Clone", "Alias")):
            parts.append(_short(name))
            if len(inputs) != 1:
                break
        node = inner[0] if inner else None
    return " < ".join(parts), values


def sound(loss: Any) -> bool:
    """Whether it is finite, as far as that is known without cost: every backward asks."""
    if type(loss) is not torch.Tensor or not loss.is_cpu or loss.dim():
        return True
    value = loss.item()
    return value - value == 0


def unused(loss: torch.Tensor, names: Sequence[str], parameters: Sequence[torch.Tensor]) -> list[str]:
    """The parameters that this loss does not depend on, by name; empty when the graph is too large to tell."""
    if loss.grad_fn is None:
        return []
    waiting, seen, reached = [loss.grad_fn], set(), set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if len(seen) > _GRAPH:
            return []
        variable = getattr(node, "variable", None)  # AccumulateGrad
        if variable is not None:
            reached.add(id(variable))
        waiting += [previous for previous, _ in node.next_functions]
    return [
        n for n, p in zip(names, parameters, strict=False) if p is not None and p.requires_grad and id(p) not in reached
    ][:_NAMES]


def _short(name: str) -> str:
    return name.removesuffix("0").removesuffix("1").removesuffix("Backward")


def _factor(node: Any, inputs: Sequence[Any], divided: bool) -> float | None:
    """By what a multiplication or division multiplies its one input that has a history."""
    first = bool(inputs) and inputs[0] is not None
    if divided and not first:
        return None  # the loss is below the line
    kept = getattr(node, "_raw_saved_other" if first else "_raw_saved_self", None)
    factor = _scalar(getattr(kept, "data", None))
    return factor if factor is None or not divided else 1.0 / factor if factor else None


def _scalar(value: Any) -> float | None:
    """A number that can be had for nothing; to ask a sharded tensor for it could be a collective."""
    if type(value) not in _PLAIN or value.is_complex() or value.numel() != 1 or value.layout is not torch.strided:
        return None
    return float(value.detach()) if value.device.type == "cpu" else None
