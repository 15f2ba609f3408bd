"""Faults in a model that is about to be wrapped: it differs from those of the other ranks."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn

from ddpnb.recorder.faults.armed import Armed

_IN_ORDER = (nn.Sequential, nn.ModuleList)  # their order is what they compute
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def extra_parameter(_armed: Armed, model: nn.Module) -> None:
    name = next(name for name in ("extra", *map("extra{}".format, range(2, 99))) if not hasattr(model, name))
    model.register_parameter(name, nn.Parameter(torch.zeros(1)))


def other_order(armed: Armed, model: nn.Module) -> None:
    """Exchange two neighbours of the same shape, of which nothing complains; else any two."""
    pairs = [pair for held in _registries(model) for pair in _neighbours(held)]
    if not pairs:
        armed.cannot("the model has no two parameters or parts that can be swapped")
        return
    held, first, second, _ = next((pair for pair in pairs if pair[3]), pairs[0])
    exchanged = {first: second, second: first}
    items = [(name, held[name]) for name in (exchanged.get(name, name) for name in held)]
    held.clear()
    held.update(items)


def other_precision(armed: Armed, model: nn.Module) -> None:
    dtype = getattr(torch, str(armed.fault.value("dtype")), None)
    if isinstance(dtype, torch.dtype) and dtype.is_floating_point:
        model.to(dtype)
    else:
        armed.cannot(f"{armed.fault.value('dtype')} is not a floating-point dtype")


def converted_batchnorm(armed: Armed, model: nn.Module) -> None:
    if any(isinstance(part, _NORMS) for part in model.modules() if part is not model):
        nn.SyncBatchNorm.convert_sync_batchnorm(model)
    else:
        armed.cannot("the model contains no batch normalisation layer")


CHANGES = {
    "extra parameter": extra_parameter,
    "other order": other_order,
    "other precision": other_precision,
    "converted batchnorm": converted_batchnorm,
}


def _registries(model: nn.Module) -> list[dict[str, Any]]:
    """What holds parameters, or parts of the model, in an order that the forward does not follow."""
    parts = list(model.modules())
    of_parts: list[dict[str, Any]] = [part._modules for part in parts if not isinstance(part, _IN_ORDER)]
    return of_parts + [part._parameters for part in parts]


def _neighbours(held: dict[str, Any]) -> list[tuple[dict[str, Any], str, str, bool]]:
    """Any two of them, and whether their shapes are the same."""
    shapes = {name: shape for name, part in held.items() if (shape := _shapes(part))}
    return [(held, first, second, shapes[first] == shapes[second]) for first, second in itertools.pairwise(shapes)]


def _shapes(part: Any) -> list[torch.Size]:
    if isinstance(part, nn.Module):
        return [parameter.shape for parameter in part.parameters()]
    return [part.shape] if isinstance(part, torch.Tensor) else []
