"""What a model was given: structure, digest and whether all numbers are finite, within microseconds.

Nothing here may run code of odd objects, nor ask a sharded tensor for anything: that could be a collective.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any
from zlib import crc32

import torch

from ddpnb.recorder.stacks.digests import exact

_TENSORS, _DEPTH, _NODES = 16, 4, 200
_BYTES = 32 << 10  # of each tensor that are digested
_ELEMENTS = 64 << 10  # of each tensor that are looked at for NaN and infinity
_OUTPUTS, _LOOKED_AT = 4, 1 << 20
_DISPATCH = getattr(torch.Tensor, "__torch_dispatch__", None)
_DIGITS = (1 << 48) - 1  # a double holds so many bits


def describe(inputs: Any, kwargs: Any) -> tuple[str, float, float, list[Any]]:
    """(structure as text, digest, 1.0 if what was looked at is finite else 0.0, weak references to the tensors).

    The structure leaves sizes out: batches may be of any size, but not of another kind. The digest is
    0 where nothing could be looked at.
    """
    tensors, text = _walk(inputs)
    if kwargs:
        more, of_kwargs = _walk(kwargs)
        tensors, text = [*tensors, *more][:_TENSORS], text + of_kwargs
    digest, good = 0, True
    for tensor in tensors:
        if (numbers := _plain(tensor)) is None:
            continue
        with contextlib.suppress(RuntimeError, TypeError, ValueError, NotImplementedError):
            part = _beginning(numbers, _ELEMENTS)
            digest = (digest * 31 + exact(part[: max(1, _BYTES // part.element_size())])) & _DIGITS
            good = good and _finite(part)
    return text, float(digest), float(good), [weakref.ref(tensor) for tensor in tensors]


def beginning(tensor: Any) -> int:
    """The digest of a tensor's first bytes, with its type and shape; 0 where they cannot be looked at.

    From another device they are fetched, which waits for that device.
    """
    if not isinstance(tensor, torch.Tensor) or (numbers := _plain(tensor, anywhere=True)) is None:
        return 0
    part = exact(_beginning(numbers, max(1, _BYTES // numbers.element_size())))
    return (part * 31 + crc32(f"{tensor.dtype} {tuple(tensor.shape)}".encode())) & _DIGITS if part else 0


def structure(value: Any) -> str:
    """The structure alone, as in ``describe``."""
    return _walk(value)[1]


def finite(tensor: torch.Tensor) -> bool:
    """Whether all of a tensor is finite, as far as that is known."""
    numbers = _plain(tensor, anywhere=True)
    with contextlib.suppress(RuntimeError, TypeError, NotImplementedError):
        return numbers is None or bool(torch.isfinite(numbers).all())
    return True


def tensors_in(outputs: Any) -> list[torch.Tensor]:
    """The first tensors of what a model gave, however it is packed, as far as that is one of Python's own kinds."""
    return _walk(outputs)[0][:_OUTPUTS]


def all_finite(tensor: torch.Tensor) -> bool:
    """Whether a tensor is finite; one that is too large to be looked at for nothing, or on a device, is taken to be."""
    if tensor.numel() > _LOOKED_AT or (numbers := _plain(tensor)) is None:
        return True
    return _finite(numbers)


def _finite(part: torch.Tensor) -> bool:
    if not part.is_floating_point() and not part.is_complex():
        return True
    total = part.sum(dtype=torch.float32) if part.dtype is torch.float16 else part.sum()
    # A sum may overflow where no element is infinite: then look again.
    return bool(total - total == 0) or bool(torch.isfinite(part).all())


def _plain(tensor: torch.Tensor, *, anywhere: bool = False) -> torch.Tensor | None:
    """The tensor as one of torch's own, if its numbers are there to be read."""
    kind = type(tensor)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        # Sharded and imagined ones say themselves what an operation on them is.
        if getattr(kind, "__torch_dispatch__", None) is not _DISPATCH:
            return None
        with torch._C.DisableTorchFunctionSubclass():
            tensor = tensor.as_subclass(torch.Tensor)
    there = tensor.layout is torch.strided and not tensor.is_nested and tensor.numel() > 0
    place = tensor.device.type
    return tensor.detach() if there and (place == "cpu" or (anywhere and place != "meta")) else None


def _beginning(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """The first elements in a row; of what lies in pieces no more is copied than that."""
    while not tensor.is_contiguous() and tensor.dim() > 1:
        row = tensor.numel() // tensor.shape[0]
        if row < count:
            tensor = tensor[: -(-count // row)]
            break
        tensor = tensor[0]
    return tensor.reshape(-1)[:count]


def _walk(value: Any) -> tuple[list[torch.Tensor], str]:
    tensors: list[torch.Tensor] = []
    return tensors, _structure(value, tensors, [_NODES], 0)


def _structure(value: Any, tensors: list[torch.Tensor], left: list[int], depth: int) -> str:
    kind = type(value)
    left[0] -= 1
    if issubclass(kind, torch.Tensor):
        if len(tensors) < _TENSORS:
            tensors.append(value)
        return f"{str(value.dtype).removeprefix('torch.')}[{value.dim()}d]"
    if depth < _DEPTH and left[0] > 0:
        # Not through methods that a user's class may override.
        if issubclass(kind, (list, tuple)):
            some = (list if issubclass(kind, list) else tuple).__getitem__(value, slice(0, _TENSORS))
            parts = [_structure(part, tensors, left, depth + 1) for part in some]
            if depth and len(parts) > 1 and parts.count(parts[0]) == len(parts):
                return f"({parts[0]}, ...)"  # may be as many as there are samples: sizes are left out
            return f"({', '.join(parts)})"
        if issubclass(kind, dict):
            pairs = [pair for pair, _ in zip(dict.items(value), range(_TENSORS), strict=False)]
            parts = [f"{_key(key)}: {_structure(part, tensors, left, depth + 1)}" for key, part in pairs]
            return f"{{{', '.join(parts)}}}"
    return kind.__name__[:40]


def _key(key: Any) -> str:
    return str(key)[:40] if type(key) in (str, int, float, bool) else type(key).__name__[:40]
