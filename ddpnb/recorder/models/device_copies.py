"""Tensors on a GPU in host memory, for a thread that looks at them while another one computes with them.

Two ways. ``in_order`` waits, not for long, until the device has done what was queued before: an ordinary copy then has the
values of the program's place. Where the device hangs in a collective, ``to_host`` copies by a stream of its own: what lies in
the device's memory now, which nothing changes any more.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import torch

_COPIED = 1 << 28  # bytes of a tensor that does not lie in one piece
_LOOK_S = 0.005
_streams: dict[int, Any] = {}


def in_order(tensors: Iterable[torch.Tensor], seconds: float) -> bool:
    """Whether the devices of these tensors do all that is queued now within so many seconds."""
    devices = {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
    events: list[Any] = []
    for device in devices:
        with torch.cuda.device(device):
            event = torch.cuda.Event()
            event.record(torch.cuda.default_stream(device))
            events.append(event)
    until = time.monotonic() + seconds
    while not all(event.query() for event in events):
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_S)
    return True


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a dense tensor in host memory, without waiting for what its device still has to do; the tensor itself on the CPU.

    Raises:
        ValueError: it lies over too much memory, in parts.
    """
    if tensor.device.type == "cpu":
        return tensor
    if tensor.is_contiguous():
        return fetched(tensor.reshape(-1)).view(tensor.shape)
    return brought(tensor)


def fetched(flat: torch.Tensor) -> torch.Tensor:
    """A copy in host memory of elements that lie in one piece on a device."""
    if flat.device.type != "cuda":
        return flat.to("cpu")
    index = flat.device.index
    if index not in _streams:
        _streams[index] = torch.cuda.Stream(flat.device)
    copy = torch.empty(flat.shape, dtype=flat.dtype, device="cpu")
    with torch.cuda.stream(_streams[index]):
        copy.copy_(flat)
    return copy


def brought(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor on a device that does not lie in one piece, in host memory; nothing is allocated or computed on the device."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    if span * tensor.element_size() > _COPIED:
        raise ValueError(
            f"it lies over {span * tensor.element_size() >> 20} MiB of the device's memory, in parts: too much to copy. "
            "Choose a part by an index, such as [0]."
        )
    flat = torch.as_strided(tensor, (span,), (1,), tensor.storage_offset())
    return torch.as_strided(fetched(flat), tensor.shape, tensor.stride(), 0)
