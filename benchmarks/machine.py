"""The head of the table: machine, versions, date, and whether other work disturbed the measurement."""

from __future__ import annotations

import datetime as dt
import os
import platform
import resource
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]
CALM = 0.05  # of the machine's processor time that others may use
_LOOK_S = 2.0


def describe() -> dict[str, Any]:
    """Processor, cores, memory, GPUs, versions, commit and date."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "gpu": _gpus() or "none",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "ipyparallel", "jupyterlab")},
        "ddpnb": _commit(),
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def head(machine: dict[str, Any]) -> str:
    calm = machine.get("load", {})
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, GPU: {machine['gpu']}, {machine['system']}\n"
        f"Python {machine['python']}, torch {machine['torch']}, ipyparallel {machine['ipyparallel']}, "
        f"JupyterLab {machine['jupyterlab']}, ddpnb {machine['ddpnb']}; {machine['date']}, {machine.get('seconds', 0):.0f} s\n"
        f"others used {calm.get('before', 0):.0%} of the processors before and {calm.get('during', 0):.0%} during the "
        f"measurement{': ' + calm['warning'] if calm.get('warning') else ''}"
    )


@dataclass
class Load:
    """How much of the processors other processes use: what all use, less this process and its children.

    Example:
        >>> load = Load()
        >>> load.other()  # since then, as a share of all cores
        0.01...
    """

    before: float = 0.0
    began: tuple[float, float, float] = field(default=(0.0, 0.0, 0.0))

    @classmethod
    def of_an_idle_moment(cls) -> Load:
        """What others use before anything is measured."""
        found = cls(began=_times())
        time.sleep(_LOOK_S)
        found.before, found.began = found.other(), _times()
        return found

    def other(self) -> float:
        now = _times()
        wall, busy, own = (one - other for one, other in zip(now, self.began, strict=True))
        return max(0.0, busy - own) / (wall * (os.cpu_count() or 1)) if wall else 0.0

    def as_json(self) -> dict[str, Any]:
        during = self.other()
        worst = max(self.before, during)
        warning = (
            f"WARNING: not calm (more than {CALM:.0%}), the times are those of a busy machine" if worst > CALM else ""
        )
        return {"before": self.before, "during": during, "load_average": os.getloadavg()[0], "warning": warning}


def _times() -> tuple[float, float, float]:
    """Wall clock, busy time of all processors, processor time of this process and its children that have ended."""
    cpu = psutil.cpu_times()
    busy = (
        sum(cpu) - cpu.idle - getattr(cpu, "iowait", 0.0) - getattr(cpu, "guest", 0.0) - getattr(cpu, "guest_nice", 0.0)
    )
    own = sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    return time.monotonic(), busy, own


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _gpus() -> str:
    if not shutil.which("nvidia-smi"):
        return ""
    done = subprocess.run(
        ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return ", ".join(done.stdout.split("\n")[:8]).strip(", ") if done.returncode == 0 else ""


def _commit() -> str:
    import ddpnb

    git = ["git", "-C", str(ROOT)]
    done = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    if done.returncode:
        return ddpnb.__version__
    changed = subprocess.run(
        [*git, "status", "--porcelain", "ddpnb"], capture_output=True, text=True, check=False
    ).stdout
    return f"{ddpnb.__version__} at {done.stdout.strip()}{' with changes' if changed.strip() else ''}"
