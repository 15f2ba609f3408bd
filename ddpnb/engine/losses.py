"""What a loss is: its value and how it was reduced and scaled, read from the end of its graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_NODES = 6
_GRAPH, _NAMES = 20_000, 64
_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


def loss_facts(loss: torch.Tensor) -> tuple[str, list[float]]:
    """(the operations from the loss inwards, as text; the loss and the factors it was scaled by).

    Only factors that are plain numbers on the CPU are read: nothing here waits for a device.
    """
    values: list[float] = []
    if loss.numel() == 1 and loss.device.type == "cpu":
        values.append(float(loss.detach()))
    parts: list[str] = []
    node = loss.grad_fn
    while node is not None and len(parts) < _NODES:
        name = type(node).__name__
        if name.startswith(("MulBackward", "DivBackward")) and values:
            factor = _scalar(getattr(node, "_saved_other", None))
            if factor is not None and len(values) < 4:
                values.append(1.0 / factor if name.startswith("Div") and factor else factor)
                parts.append("scaled")
        elif (reduction := getattr(node, "_saved_reduction", None)) is not None:
            parts.append(f"{_plain(name)} {_REDUCTIONS.get(reduction, '?')}")
            break
        elif name.startswith(("SumBackward", "MeanBackward")):
            parts.append(_plain(name))
            break
        elif not name.startswith(("_DDPSink", "View", "Squeeze", "ToCopy", "Clone", "Alias")):
            parts.append(_plain(name))
            if len(node.next_functions) != 1:
                break
        node = node.next_functions[0][0] if node.next_functions else None
    return " < ".join(parts), values


def unused(loss: torch.Tensor, names: Sequence[str], parameters: Sequence[torch.Tensor]) -> list[str]:
    """The parameters that this loss does not depend on, by name; empty when the graph is too large to tell."""
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
        waiting += [one for one, _ in node.next_functions]
    return [n for n, p in zip(names, parameters, strict=False) if p.requires_grad and id(p) not in reached][:_NAMES]


def _plain(name: str) -> str:
    return name.removesuffix("0").removesuffix("1").removesuffix("Backward")


def _scalar(value: Any) -> float | None:
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, torch.Tensor) and value.dim() == 0 and value.device.type == "cpu":
        return float(value.detach())
    return None
