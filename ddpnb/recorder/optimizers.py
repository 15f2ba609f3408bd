"""What an optimizer holds and is set to, as facts that can be compared between ranks."""

from __future__ import annotations

from typing import Any

import torch

from ddpnb.model.events.models import OptimizerSeen
from ddpnb.recorder.tracked_model import Watched

_GROUPS = 8


def hyper_parameters(optimizer: Any) -> tuple[list[str], list[float]]:
    """Names and values of all settings that are numbers, group by group."""
    names: list[str] = []
    values: list[float] = []
    for number, group in enumerate(optimizer.param_groups[:_GROUPS]):
        prefix = f"group {number}: " if number else ""
        for name, value in group.items():
            if isinstance(value, (int, float)):
                names.append(prefix + name)
                values.append(float(value))
            elif name == "betas" and isinstance(value, tuple):
                names += [f"{prefix}beta {i}" for i in range(len(value))]
                values += map(float, value)
            elif isinstance(value, torch.Tensor) and value.numel() == 1 and value.device.type == "cpu":
                names.append(prefix + name)
                values.append(float(value))
    return names, values


def held_by(
    optimizer: Any, parameters: list[Any], held: set[int], watched: Watched, *, followed: bool
) -> OptimizerSeen:
    """How the optimizer's parameters and those that the model trains cover each other.

    ``followed``: some of them are the same.
    """
    trained = [(n, p) for n, p in zip(watched.names, watched.parameters, strict=False) if p.requires_grad]
    shapes = sorted(tuple(p.shape) for p in parameters)
    return OptimizerSeen(
        optimizer=type(optimizer).__name__,
        model=watched.number,
        parameters=len(parameters),
        strangers=sum(id(p) not in watched.ids for p in parameters),
        missing=tuple(name for name, parameter in trained if id(parameter) not in held)[:20],
        copies=not followed and shapes == sorted(tuple(p.shape) for _, p in trained),
    )
