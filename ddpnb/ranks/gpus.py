"""What the driver knows of the GPUs of this machine, by NVML. Not yet run on GPUs.

The driver may take its time, so a thread asks it for the usage, at most every two seconds.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_EVERY_S = 2.0

_lock = threading.Lock()
_known: dict[int, dict[str, Any]] = {}
_numbers: dict[str, int] = {}  # by UUID
_asked_at = -_EVERY_S


def usage(device: str, visible: str | None = None) -> dict[str, Any]:
    """``device_memory``, ``device_total`` (bytes) and ``device_busy`` (0 to 1) of ``cuda:0``; empty for a CPU.

    What was known at the last query; the first answer is empty. The driver counts GPUs by their place on the bus: where a
    machine has GPUs of several kinds, CUDA does so too only with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.

    Args:
        device: as the rank's torch names it.
        visible: the rank's CUDA_VISIBLE_DEVICES; None: that of this process.
    """
    global _asked_at
    kind, _, number = device.partition(":")
    if kind != "cuda" or not number.isdecimal():
        return {}
    with _lock:
        if time.monotonic() - _asked_at >= _EVERY_S:
            _asked_at = time.monotonic()
            threading.Thread(target=_ask, name="ddpnb NVML", daemon=True).start()
        physical = _physical(int(number), os.environ.get("CUDA_VISIBLE_DEVICES", "") if visible is None else visible)
        return dict(_known.get(physical, {}))


def _physical(number: int, visible: str) -> int:
    """The driver's number of the device that torch calls so: CUDA_VISIBLE_DEVICES may name others. -1: it is not known.

    A UUID there may be shortened, as long as one GPU begins with it.
    """
    names = [name.strip() for name in visible.split(",")]
    if not visible.strip():
        return number
    if number >= len(names):
        return -1
    if names[number].isdecimal():
        return int(names[number])
    found = [one for uuid, one in _numbers.items() if names[number] and uuid.startswith(names[number])]
    return found[0] if len(found) == 1 else -1


def _ask() -> None:
    import pynvml
    from pynvml import NVMLError

    with suppress(NVMLError):
        known = {number: one for number, one in enumerate(handles()) if not isinstance(one, NVMLError)}
        found = {number: _usage(handle) for number, handle in known.items()}
        uuids = {text_of(answer_of(pynvml.nvmlDeviceGetUUID, handle)): number for number, handle in known.items()}
        with _lock:
            _known.update(found)
            _numbers.update(uuids)


def handles() -> list[Any]:
    """The driver's handles of all GPUs, by number; the error in place of one that it does not give.

    Raises:
        pynvml.NVMLError: there is no driver, or it does not work.
    """
    import pynvml

    def handle(number: int) -> Any:
        try:
            return pynvml.nvmlDeviceGetHandleByIndex(number)
        except pynvml.NVMLError as error:
            return error

    pynvml.nvmlInit()
    return [handle(number) for number in range(pynvml.nvmlDeviceGetCount())]


def _usage(handle: Any) -> dict[str, Any]:
    """What the device does not tell is left out."""
    import pynvml

    found: dict[str, Any] = {}
    memory = answer_of(pynvml.nvmlDeviceGetMemoryInfo, handle)
    if memory is not None and memory.total:
        found |= {"device_memory": memory.used, "device_total": memory.total}
    rates = answer_of(pynvml.nvmlDeviceGetUtilizationRates, handle)
    if rates is not None:
        found["device_busy"] = min(1.0, rates.gpu / 100)
    return found


def text_of(answer: Any) -> str:
    """Older versions of the library answer in bytes."""
    return answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer or "")


def answer_of(question: Callable[..., Any], *arguments: Any) -> Any:
    """The driver's answer; None where the device has none."""
    from pynvml import NVMLError

    try:
        return question(*arguments)
    except NVMLError:
        return None
