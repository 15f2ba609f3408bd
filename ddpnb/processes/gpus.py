"""What the GPUs of this machine say of themselves: memory and utilisation, by nvidia-smi. Not yet run on GPUs.

It takes a tenth of a second, so it is asked by a thread of its own, and at most every two seconds.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from typing import Any

_QUERY = "--query-gpu=index,memory.used,memory.total,utilization.gpu"
_EVERY_S = 2.0
_MIB = 1 << 20

_lock = threading.Lock()
_known: dict[int, dict[str, Any]] = {}
_asked_at = -_EVERY_S


def usage(device: str) -> dict[str, Any]:
    """``device_memory``, ``device_total`` (bytes) and ``device_busy`` (0 to 1) of ``cuda:0``; empty for a CPU.

    What was known at the last asking; the first answer is empty.
    """
    global _asked_at
    kind, _, number = device.partition(":")
    if kind != "cuda" or not number.isdecimal():
        return {}
    with _lock:
        if time.monotonic() - _asked_at >= _EVERY_S:
            _asked_at = time.monotonic()
            threading.Thread(target=_ask, name="ddpnb nvidia-smi", daemon=True).start()
        return dict(_known.get(_physical(int(number)), {}))


def _physical(number: int) -> int:
    """The driver's number of the device that torch calls so: CUDA_VISIBLE_DEVICES may name others."""
    visible = [one.strip() for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return int(visible[number]) if number < len(visible) and visible[number].isdecimal() else number


def _ask() -> None:
    try:
        done = subprocess.run(
            ["nvidia-smi", _QUERY, "--format=csv,noheader,nounits"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return
    with _lock:
        _known.update(parse(done.stdout))


def parse(answer: str) -> dict[int, dict[str, Any]]:
    """What nvidia-smi prints, by device; what a device does not tell (``[N/A]``) is left out."""
    found: dict[int, dict[str, Any]] = {}
    for line in answer.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 4 or not fields[0].isdecimal():
            continue
        used, total, busy = (int(field) if field.isdecimal() else None for field in fields[1:])
        told: dict[str, Any] = {}
        if used is not None and total:
            told |= {"device_memory": used * _MIB, "device_total": total * _MIB}
        if busy is not None:
            told["device_busy"] = min(1.0, busy / 100)
        found[int(fields[0])] = told
    return found
