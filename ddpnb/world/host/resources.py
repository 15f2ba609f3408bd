"""Cores, memory, shared memory, limits and disk space."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import psutil

from ddpnb.ranks import machine
from ddpnb.recording.checks import Check, judged

_FILES, _GIB = 4096, 1 << 30
_INFINIBAND = "/sys/class/infiniband"


def checks(ranks: int, variables: Mapping[str, str]) -> list[Check]:
    """Check what this number of ranks needs."""
    facts = machine.facts()
    return [
        cores(facts, ranks, variables),
        memory(facts),
        shared_memory(facts),
        *limits(),
        disk((os.curdir, tempfile.gettempdir())),
    ]


def cores(facts: Mapping[str, Any], ranks: int, variables: Mapping[str, str]) -> Check:
    """Cores, and the threads that the ranks would start."""
    count = float(facts.get("cores") or 0)
    told = f"{count:g} cores for {ranks} rank{'s' * (ranks > 1)}"
    threads = variables.get("OMP_NUM_THREADS", "")
    details = {"cores": count, "OMP_NUM_THREADS": threads}
    todo = ""
    if threads.isdigit() and int(threads) * ranks >= 4 * max(count, 1):
        told += f", with OMP_NUM_THREADS={threads} each"
        todo = f"Set OMP_NUM_THREADS={max(1, int(count / ranks))}, or unset it: torchrun and ddpnb set 1."
    return judged("cores", told, todo, "DDP704", details=details)


def memory(facts: Mapping[str, Any]) -> Check:
    """Memory, as the control groups limit it."""
    if "memory_available" not in facts:
        return Check("memory", "unknown", "not available on this system")
    free, total = facts["memory_available"], facts["memory_total"]
    limited = total < psutil.virtual_memory().total
    told = f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB available{' (limit of the control group)' * limited}"
    details = {"available": free, "total": total, "limited": limited, "oom_kills": facts.get("oom_kills")}
    if kills := facts.get("oom_kills"):
        told = f"{told}; the OOM killer has killed {kills} processes here"
    todo = "Use fewer ranks or data loader workers, smaller batches, or a larger limit for the container."
    return judged("memory", told, todo if kills or free <= _GIB else "", "DDP706", details=details)


def shared_memory(facts: Mapping[str, Any]) -> Check:
    """What data loaders and NCCL pass through."""
    if "shm_total" not in facts:
        return Check("/dev/shm", "unknown", "not present")
    free, total = facts["shm_free"], facts["shm_total"]
    told, details = f"{free / _GIB:.2f} of {total / _GIB:.2f} GiB free", {"free": free, "total": total}
    todo = "In a container: docker run --shm-size=8g, or --ipc=host; else remove old files from it."
    return judged("/dev/shm", told, todo if free < _GIB else "", "DDP506", details=details)


def limits() -> list[Check]:
    """Open files; and locked memory, which RDMA needs, where there is InfiniBand."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        locked, most = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    except (ImportError, OSError):
        return [Check("open files", "unknown", "not available on this system")]
    details = {"soft": soft, "hard": hard, "locked_memory": locked}
    told = f"soft limit {_amount(soft)} per process (hard limit {_amount(hard)})"
    todo = f"ulimit -n {_amount(hard) if hard > 0 else 65536}, before the ranks start."
    found = [judged("open files", told, todo if 0 <= soft < _FILES else "", "DDP705", details=details)]
    if os.path.isdir(_INFINIBAND) and os.listdir(_INFINIBAND):
        found.append(locked_memory(locked, most))
    return found


def locked_memory(soft: int, hard: int) -> Check:
    """The limit of memory that RDMA may register; -1: none."""
    details = {"soft": soft, "hard": hard}
    if soft < 0:
        return judged("locked memory", "unlimited, as InfiniBand needs it", details=details)
    told = f"limited to {soft >> 10} KiB: InfiniBand cannot register its buffers"
    todo = "ulimit -l unlimited (docker run --ulimit memlock=-1; LimitMEMLOCK=infinity of a service)."
    return judged("locked memory", told, todo, "DDP705", details=details)


def disk(folders: tuple[str, ...]) -> Check:
    """Free space where the user works, and where temporary files go."""
    free: dict[str, int] = {}
    for folder in dict.fromkeys(map(os.path.abspath, folders)):
        try:
            free[folder] = shutil.disk_usage(folder).free
        except OSError:
            continue
    if not free:
        return Check("disk", "unknown", "its free space cannot be read")
    told = ", ".join(f"{space / _GIB:.1f} GiB free in {folder}" for folder, space in free.items())
    todo = "Remove what is not needed, or set TMPDIR: checkpoints and logs need space."
    return judged("disk", told, todo if min(free.values()) < _GIB else "", "DDP705", details={"free": free})


def _amount(limit: int) -> str:
    return "unlimited" if limit < 0 else str(limit)
