"""Losses on a GPU: copied to the host behind the work that computes them, and read later, when the copy is complete.

Nothing here waits for the device. A copy into page-locked memory is queued on the stream of the backward pass, an event behind
it; the host asks the event, which answers at once. The page-locked memory is allocated once, for all losses of a process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

_COPIES = 32  # on their way at the same time; a loss for which there is no room is not recorded
_BYTES = 8  # of one
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class DeviceLosses:
    """The losses of this process that are on their way to the host.

    Args:
        kind: the type of device.
        device: its module in torch.
    """

    def __init__(self, kind: str = "cuda", device: Any = torch.cuda) -> None:
        self.kind, self._device = kind, device
        self._memory: torch.Tensor | None = None
        self._free = list(range(0, _COPIES * _BYTES, _BYTES))
        # (event, place of the copy, its offset, what gets the value)
        self._waiting: deque[tuple[Any, torch.Tensor, int, Callable[[float], None]]] = deque()

    def take(self, loss: Any, then: Callable[[float], None]) -> None:
        """Queue a copy of a loss; ``poll`` calls ``then`` with its value. Nothing is done for what is no number on the device.

        Nor while a CUDA graph is captured: the copy would become a part of the graph.
        """
        if type(loss) not in _PLAIN or loss.device.type != self.kind or loss.numel() != 1 or not self._free:
            return
        if not loss.is_floating_point() or loss.layout is not torch.strided or loss.is_neg():
            return
        if loss.device.index != self._device.current_device() or self._device.is_current_stream_capturing():
            return
        if self._memory is None:
            self._memory = self._allocated()
        at = self._free.pop()
        with torch.no_grad():
            place = self._memory[at : at + loss.itemsize].view(
                loss.dtype
            )  # another type would be converted on the device
            place.copy_(loss.detach().reshape(1), non_blocking=True)
        event = self._device.Event()
        event.record()
        self._waiting.append((event, place, at, then))

    def poll(self) -> None:
        """Hand over the losses whose copies are complete, in their order."""
        waiting = self._waiting
        if not waiting or self._device.is_current_stream_capturing():
            return
        while waiting and waiting[0][0].query():
            _, place, at, then = waiting.popleft()
            value = place.item()
            self._free.append(at)
            then(value)

    def forget(self) -> None:
        """A new run begins: what is still on its way is of the one before. Its memory is given up, since copies come into it."""
        if self._waiting:
            self._waiting.clear()
            self._memory = None
            self._free = list(range(0, _COPIES * _BYTES, _BYTES))

    def _allocated(self) -> torch.Tensor:
        return torch.empty(_COPIES * _BYTES, dtype=torch.uint8, device="cpu", pin_memory=True)
