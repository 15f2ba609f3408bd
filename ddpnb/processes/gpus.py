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
_asked_at = -_EVERY_S


def usage(device: str) -> dict[str, Any]:
    """``device_memory``, ``device_total`` (bytes) and ``device_busy`` (0 to 1) of ``cuda:0``; empty for a CPU.

    What was known at the last query; the first answer is empty.
    """
    global _asked_at
    kind, _, number = device.partition(":")
    if kind != "cuda" or not number.isdecimal():
        return {}
    with _lock:
        if time.monotonic() - _asked_at >= _EVERY_S:
            _asked_at = time.monotonic()
            threading.Thread(target=_ask, name="ddpnb NVML", daemon=True).start()
        return dict(_known.get(_physical(int(number)), {}))


def _physical(number: int) -> int:
    """The driver's number of the device that torch calls so: CUDA_VISIBLE_DEVICES may name others."""
    visible = [one.strip() for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return int(visible[number]) if number < len(visible) and visible[number].isdecimal() else number


def _ask() -> None:
    from pynvml import NVMLError

    with suppress(NVMLError):
        found = {number: _usage(handle) for number, handle in enumerate(handles())}
        with _lock:
            _known.update(found)


def handles() -> list[Any]:
    """The driver's handles of all GPUs, by number.

    Raises:
        pynvml.NVMLError: there is no driver, or it does not work.
    """
    import pynvml

    pynvml.nvmlInit()
    return [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]


def _usage(handle: Any) -> dict[str, Any]:
    """What the device does not tell is left out."""
    import pynvml

    found: dict[str, Any] = {}
    memory = _told(pynvml.nvmlDeviceGetMemoryInfo, handle)
    if memory is not None and memory.total:
        found |= {"device_memory": memory.used, "device_total": memory.total}
    rates = _told(pynvml.nvmlDeviceGetUtilizationRates, handle)
    if rates is not None:
        found["device_busy"] = min(1.0, rates.gpu / 100)
    return found


def _told(question: Callable[..., Any], *arguments: Any) -> Any:
    """The driver's answer; None where the device has none."""
    from pynvml import NVMLError

    try:
        return question(*arguments)
    except NVMLError:
        return None
