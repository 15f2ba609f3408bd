"""Resources of the machine: cores, memory, shared memory, and processes killed by the OOM killer.

Limits of control groups count, since they are what a container has. A fact that the system does not
tell is left out. One call reads a dozen small files.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

_GROUPS = "/sys/fs/cgroup"
_SYSTEM = f"{platform.system()} {platform.release()} {platform.machine()}"
_UNLIMITED = 1 << 60  # how version 1 says that there is no limit


def facts() -> dict[str, Any]:
    """``system``, ``cores`` (a float where a quota applies), ``memory_*`` and ``shm_*`` in bytes, and ``oom_kills``."""
    return {"system": _SYSTEM, "cores": cores(), **_shared_memory(), **_memory(), **oom_kills()}


def cores() -> float:
    """How many cores this process may use at a time."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [float(usable)]
    for folder in _control_groups("cpu"):
        quota, period = [*_words(folder, "cpu.max"), "", ""][:2]
        if not quota:
            quota, period = _first(folder, "cpu.cfs_quota_us"), _first(folder, "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            quotas.append(int(quota) / int(period))
    return min(quotas)


def memory_groups(pids: Iterable[int]) -> tuple[str, ...]:
    """The folders of the control groups whose kills for memory are those of these processes."""
    groups = {
        next((folder for folder in _control_groups("memory", pid) if _kills_in(folder) is not None), "") for pid in pids
    }
    return tuple(sorted(groups - {""}))


def oom_kills(groups: Sequence[str] = ()) -> dict[str, int]:
    """How many processes the OOM killer has killed.

    ``oom_kills``: in the control groups of ``memory_groups()``; by default in that of this process. ``oom_kills_anywhere``:
    on the machine.
    """
    counts = [_kills_in(folder) for folder in groups]
    if not groups:
        counts = [
            next((kills for folder in _control_groups("memory") if (kills := _kills_in(folder)) is not None), None)
        ]
    kills = {
        "oom_kills": sum(count or 0 for count in counts) if any(count is not None for count in counts) else None,
        "oom_kills_anywhere": _named("/proc", "vmstat").get("oom_kill"),
    }
    return {name: count for name, count in kills.items() if count is not None}


def _kills_in(folder: str) -> int | None:
    # Of version 2: those of version 1 leave out what happens in groups below, into which a rank may have moved.
    return _named(folder, "memory.events").get("oom_kill")


def _memory() -> dict[str, int]:
    info = _named("/proc", "meminfo")
    if "MemTotal:" not in info:
        return {}
    total, available = info["MemTotal:"] << 10, info.get("MemAvailable:", 0) << 10
    for folder in _control_groups("memory"):
        limit = _first(folder, "memory.max") or _first(folder, "memory.limit_in_bytes")
        used = _first(folder, "memory.current") or _first(folder, "memory.usage_in_bytes")
        if limit.isdigit() and used.isdigit() and int(limit) < _UNLIMITED:
            cached = _named(folder, "memory.stat").get("inactive_file", 0)  # given back when it is needed
            total = min(total, int(limit))
            available = min(available, max(0, int(limit) - int(used) + cached))
    return {"memory_total": total, "memory_available": available}


def _shared_memory() -> dict[str, int]:
    with contextlib.suppress(OSError):
        space = os.statvfs("/dev/shm")
        return {"shm_total": space.f_blocks * space.f_frsize, "shm_free": space.f_bavail * space.f_frsize}
    return {}


def _control_groups(controller: str, pid: int | str = "self") -> Iterator[str]:
    """The folders of the groups that a process is in, innermost first, that hold this controller's files."""
    try:
        with open(f"/proc/{pid}/cgroup") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return
    for fields in lines:
        if len(fields) != 3 or (fields[1] and controller not in fields[1].split(",")):
            continue
        root = os.path.join(_GROUPS, fields[1]) if fields[1] else _GROUPS
        path = os.path.normpath(fields[2])
        while True:
            folder = os.path.normpath(root + path)
            if os.path.isdir(folder):
                yield folder
            if path in ("/", ".", ""):
                break
            path = os.path.dirname(path)


def _words(folder: str, name: str) -> list[str]:
    try:
        with open(os.path.join(folder, name)) as file:
            return file.read(1 << 16).split()
    except OSError:
        return []


def _first(folder: str, name: str) -> str:
    return next(iter(_words(folder, name)), "")


def _named(folder: str, name: str) -> dict[str, int]:
    """A file of lines with a name and a number."""
    numbers: dict[str, int] = {}
    try:
        with open(os.path.join(folder, name)) as file:
            for line in file.read(1 << 16).splitlines():
                fields = line.split()
                if len(fields) >= 2 and fields[1].isdigit():
                    numbers[fields[0]] = int(fields[1])
    except OSError:
        pass
    return numbers
