"""What a rank tells the doctor after start-up: its versions, which GPUs reach each other, and how long collectives take."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist

from ddpnb.recorder.collectives.groups import implementation
from ddpnb.recorder.collectives.phases import versions
from ddpnb.recorder.events.torch_names import TESTED, lost, version
from ddpnb.recording.protocol import DEVICE

SIZES = (4 << 10, 1 << 20, 64 << 20)  # bytes of an all-reduce
_SMALLER = 4  # by which a size is divided that would take too long
_BARRIER_S = 0.2
_SHARES_S = (0.3, 0.5, 1.5)  # of the time, for each size
_LEAST, _MOST = 3, 200  # calls that are measured
_PEERS = 16
_ELEMENT = 4  # bytes


def measure() -> dict[str, Any]:
    """Measure on the default group of this rank; all its ranks must call this. What fails is left out, with the reason."""
    device = torch.device(os.environ.get(DEVICE, "cpu"))
    found: dict[str, Any] = {"software": software(), "peers": peers(), "collectives": [], "error": ""}
    try:
        found["collectives"] = collectives(device)
    except (RuntimeError, ValueError) as error:
        found["error"] = f"{type(error).__name__}: {error}"[:400]
    return found


def software() -> dict[str, Any]:
    """Versions, and the backends of this torch."""
    found: dict[str, Any] = {
        **versions(),
        "platform": platform.platform(),
        "git": str(torch.version.git_version or "")[:12],
    }
    kinds = {
        "gloo": dist.is_gloo_available,
        "nccl": dist.is_nccl_available,
        "mpi": dist.is_mpi_available,
        "ucc": dist.is_ucc_available,
    }
    found["backends"] = [name for name, there in kinds.items() if there()]
    if dist.is_initialized():
        found["implementation"] = implementation(dist.group.WORLD)
    with suppress(RuntimeError):  # the library and torch do not fit
        number = torch.backends.cudnn.version() if torch.version.cuda else None
        if number:
            found["cudnn"] = _dotted(number)
    if getattr(torch.version, "hip", None):
        found["hip"] = str(torch.version.hip)
    found |= {"devices": torch.cuda.device_count(), "threads": torch.get_num_threads()}
    found |= {"newer": version() > TESTED[1], "not_known": lost()}
    if torch.version.cuda and not found["devices"]:
        try:
            torch.cuda.init()
        except (RuntimeError, AssertionError) as error:  # it says why
            found["unusable"] = str(error)[:400]
    if found["devices"]:
        found["architectures"] = torch.cuda.get_arch_list()
    return found


def _dotted(number: int) -> str:
    """9.10.2 of 91002; before version 9 8.9.7 of 8907."""
    unit = 10000 if number >= 90000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


def peers() -> dict[str, Any]:
    """Device -> the devices whose memory it can access directly; empty with less than two. Not yet run on GPUs."""
    numbers = range(min(torch.cuda.device_count(), _PEERS))
    if len(numbers) < 2:
        return {}
    return {
        str(one): [other for other in numbers if other != one and torch.cuda.can_device_access_peer(one, other)]
        for one in numbers
    }


def collectives(device: torch.device) -> list[dict[str, Any]]:
    """The seconds of barriers and all-reduces on this rank, call by call, in 3 seconds together."""
    agreed = torch.zeros(1, dtype=torch.float64, device=device)

    def slowest(seconds: float) -> float:
        """The longest time of all ranks: they must make the same number of calls."""
        agreed.fill_(seconds)
        dist.all_reduce(agreed, dist.ReduceOp.MAX)
        return float(agreed.item())

    found = [{"op": "barrier", "size": 0, "seconds": _series(dist.barrier, device, slowest, _BARRIER_S)}]
    bytes_per_s = 0.0
    for size, share in zip(SIZES, _SHARES_S, strict=True):
        while bytes_per_s and size > SIZES[0] and size / bytes_per_s * (_LEAST + 1) > share:
            size //= _SMALLER
        if any(one["size"] == size for one in found):
            continue
        tensor = torch.zeros(size // _ELEMENT, device=device)
        seconds = _series(lambda tensor=tensor: dist.all_reduce(tensor), device, slowest, share)
        bytes_per_s = size / slowest(sorted(seconds)[len(seconds) // 2])
        found.append({"op": "all_reduce", "size": size, "seconds": seconds})
    return found


def _series(
    call: Callable[[], Any], device: torch.device, slowest: Callable[[float], float], share: float
) -> list[float]:
    """The times of as many calls as fit into ``share`` seconds, after one to warm up and one to estimate."""
    _timed(call, device)
    one = slowest(_timed(call, device))
    count = max(_LEAST, min(_MOST, int(share / max(one, 1e-9))))
    return [_timed(call, device) for _ in range(count)]


def _timed(call: Callable[[], Any], device: torch.device) -> float:
    began = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began
