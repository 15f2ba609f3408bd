"""What a model was given: structure, digest and whether all numbers are finite, within microseconds."""

from __future__ import annotations

import weakref
import zlib
from typing import Any

import torch

_TENSORS, _DEPTH = 16, 4
_BYTES = 32 << 10  # of each tensor that are digested
_ELEMENTS = 64 << 10  # of each tensor that are looked at for NaN and infinity


def describe(inputs: Any, kwargs: Any) -> tuple[str, float, float, list[Any]]:
    """(structure as text, digest, 1.0 if what was looked at is finite else 0.0, weak references to the tensors).

    The structure leaves sizes out: batches may be of any size, but not of another kind.
    """
    tensors: list[torch.Tensor] = []
    text = _structure(inputs, tensors, 0)
    if kwargs:
        text += _structure(kwargs, tensors, 0)
    digest, finite = 0, True
    for tensor in tensors:
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.numel():
            continue
        flat = tensor.detach().reshape(-1) if tensor.is_contiguous() else tensor.detach()[:1].reshape(-1)
        part = flat[: max(1, _BYTES // flat.element_size())]
        if part.dtype is torch.bfloat16:
            part = part.view(torch.int16)
        digest = zlib.crc32(memoryview(part.numpy()).cast("B"), digest)  # type: ignore[arg-type]
        if tensor.is_floating_point():
            total = float(flat[:_ELEMENTS].sum(dtype=torch.float64))
            # A sum may overflow where no element is infinite: then look again.
            finite = finite and (total - total == 0.0 or bool(torch.isfinite(flat[:_ELEMENTS]).all()))
    return text, float(digest), float(finite), [weakref.ref(tensor) for tensor in tensors]


def _structure(value: Any, tensors: list[torch.Tensor], depth: int) -> str:
    if isinstance(value, torch.Tensor):
        if len(tensors) < _TENSORS:
            tensors.append(value)
        return f"{str(value.dtype).removeprefix('torch.')}[{value.dim()}d]"
    if depth < _DEPTH and isinstance(value, (list, tuple)):
        parts = [_structure(one, tensors, depth + 1) for one in value[:_TENSORS]]
        return f"({', '.join(parts)})"
    if depth < _DEPTH and isinstance(value, dict):
        parts = [
            f"{str(key)[:40]}: {_structure(one, tensors, depth + 1)}" for key, one in list(value.items())[:_TENSORS]
        ]
        return f"{{{', '.join(parts)}}}"
    return type(value).__name__[:40]
