"""Which rank gets which device, by torchrun's convention.

All devices stay visible to all ranks and LOCAL_RANK selects; a script that calls
``torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))`` finds its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ddpnb.errors import DeviceError, UsageError
from ddpnb.ranks import machine
from ddpnb.recording import arguments

BACKENDS = ("nccl", "gloo")

RANK_BYTES = 180 << 20  # of memory that a rank takes with torch loaded, before the user's program
_RANKS_A_CORE, _RANKS_AT_LEAST = 64, 32


@dataclass(frozen=True, slots=True)
class Plan:
    """The devices of a world: one name per rank (``cuda:0``, ``cpu``), the backend, the variables."""

    backend: str
    devices: tuple[str, ...]
    environment: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    chosen: bool = False  # by an argument or DDP_BACKEND: it overrides what a script asks for
    hosts: tuple[str, ...] = ()  # of the ranks, in rank order; empty: all are on this one

    @property
    def description(self) -> str:
        kinds = sorted({device.split(":")[0] for device in self.devices})
        where = f" on {len(groups)} hosts" if len(groups := dict.fromkeys(self.hosts)) > 1 else ""
        return f"{len(self.devices)} ranks{where}, {self.backend}, {'+'.join(kinds)}"

    def neighbours(self, rank: int) -> range:
        """The ranks of the same host, this one included."""
        if not self.hosts:
            return range(len(self.devices))
        first = self.hosts.index(self.hosts[rank])
        return range(first, first + self.hosts.count(self.hosts[rank]))


@dataclass(frozen=True, slots=True)
class HostDevices:
    """What a host has for ranks."""

    name: str
    engines: int  # of the user's client
    gpus: int
    nccl: bool  # its torch has it


def count_gpus() -> int:
    """CUDA devices that a rank would see; 0 without a working driver.

    Asked of a child process where a driver is present, so that the notebook's own process never
    initialises CUDA.
    """
    if not (os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")):
        return 0
    code = "import torch; print(torch.cuda.device_count())"
    try:
        # -P: a file in the working directory must not stand in for a module that torch imports
        done = subprocess.run(
            [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=True
        )
        return int(done.stdout.strip() or 0)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


def nccl_works() -> bool:
    """Whether this torch has NCCL at all (the first collective may still fail)."""
    import torch.distributed as dist

    return dist.is_available() and dist.is_nccl_available()


def ranks_that_fit() -> tuple[int, str]:
    """How many ranks this machine has room for, and what limits them. Generous: it only keeps it from being swamped."""
    by_cores = max(_RANKS_AT_LEAST, int(_RANKS_A_CORE * machine.cores()))
    available = machine.facts().get("memory_available")
    if available is not None and (by_memory := max(2, int(available) // RANK_BYTES)) < by_cores:
        return (
            by_memory,
            f"{available / 2**30:.1f} GiB of memory are available, and a rank needs {RANK_BYTES >> 20} MiB",
        )
    return by_cores, f"this process may use {machine.cores():g} cores"


def plan(
    n: int,
    backend: str | None = None,
    devices: Sequence[int] | None = None,
    *,
    gpus: Callable[[], int] = count_gpus,
    nccl: Callable[[], bool] = nccl_works,
    room: Callable[[], tuple[int, str]] = ranks_that_fit,
) -> Plan:
    """Plan ``n`` ranks.

    Args:
        n: number of ranks.
        backend: ``nccl``, ``gloo`` or None: DDP_BACKEND, else NCCL where there are GPUs.
        devices: the CUDA devices to use, in rank order; by default 0 to n - 1.

    Raises:
        UsageError: n is not a positive whole number or more than the machine has room for, or the backend is unknown.
        DeviceError: more ranks than GPUs, or a device that does not exist.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n <= 0:
        raise UsageError(
            f"at least one rank is needed, not {arguments.short(n)}.", "Give a whole number of ranks, such as 4."
        )
    most, limit = room()
    if n > most:
        raise UsageError(f"{n} ranks do not fit on this machine: {limit}.", f"Use at most {most} ranks.")
    asked = _asked(backend)
    if devices is not None:
        devices = arguments.wholes("devices", devices)
    if asked == "gloo" and devices is None:
        return Plan("gloo", ("cpu",) * n, {}, chosen=True)
    count = gpus()
    if count == 0:
        if devices is not None:
            raise DeviceError("this machine has no CUDA device.", 'Leave out devices=, or use backend="gloo".')
        warnings = ()
        if asked == "nccl":
            warnings = ("NCCL needs a GPU and none was found: falling back to gloo on the CPU.",)
        return Plan("gloo", ("cpu",) * n, {}, warnings, chosen=True)  # a script that asks for NCCL falls back
    return _on_gpus(n, asked, devices, count, nccl)


def plan_over(n: int, hosts: Sequence[HostDevices], backend: str | None = None) -> Plan:
    """Plan ``n`` ranks on several hosts: ranks of a host follow one another.

    If there are as many engines as ranks, each host gets as many ranks as it has engines, which is how a launcher such as
    ``srun`` has placed them; otherwise ranks are spread evenly.

    Args:
        n: number of ranks.
        hosts: in the order in which they get ranks; one that gets none is left out.
        backend: as for ``plan``.

    Raises:
        UsageError: n is not a positive whole number, or the backend is unknown.
        DeviceError: a host would get more ranks than it has GPUs, and NCCL was asked for.
    """
    n = arguments.whole("n", n, 1)
    counts = [host.engines for host in hosts]
    if sum(counts) != n:
        counts = [n // len(hosts) + (index < n % len(hosts)) for index in range(len(hosts))]
    used = [(host, count) for host, count in zip(hosts, counts, strict=True) if count]
    fits = all(host.gpus >= count for host, count in used)
    works = fits and all(host.nccl for host, _ in used)
    asked = _asked(backend)
    if asked == "nccl" and not fits and all(host.gpus for host, _ in used):
        host, count = next((host, count) for host, count in used if host.gpus < count)
        raise DeviceError(
            f"{count} ranks do not fit on the {host.gpus} GPU{'s' * (host.gpus != 1)} of {host.name}: NCCL needs one "
            "GPU per rank.",
            'Use fewer ranks, or backend="gloo".',
        )
    warnings = ("NCCL cannot be used on all hosts: falling back to gloo.",) if asked == "nccl" and not works else ()
    on_gpus = asked != "gloo" and works
    return Plan(
        "nccl" if on_gpus else "gloo",
        tuple(f"cuda:{local}" if on_gpus else "cpu" for _, count in used for local in range(count)),
        {},
        warnings,
        asked is not None or not on_gpus,
        tuple(host.name for host, count in used for _ in range(count)),
    )


def _asked(backend: str | None) -> str | None:
    """The backend that was asked for, by the argument or by DDP_BACKEND.

    Raises:
        UsageError: it is unknown.
    """
    if backend is not None and not isinstance(backend, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"unknown backend {arguments.short(backend)}.", f"Choose one of: {', '.join(BACKENDS)}.")
    asked = backend or os.environ.get("DDP_BACKEND") or None
    if asked is not None and asked.lower() not in BACKENDS:
        raise UsageError(f"unknown backend {asked.lower()!r}.", f"Choose one of: {', '.join(BACKENDS)}.")
    return asked.lower() if asked is not None else None


def _on_gpus(n: int, asked: str | None, devices: Sequence[int] | None, count: int, nccl: Callable[[], bool]) -> Plan:
    chosen = list(devices) if devices is not None else list(range(count))
    unknown = [device for device in chosen if not 0 <= device < count]
    if unknown:
        raise DeviceError(
            f"there is no CUDA device {unknown[0]}: this machine has {count}.",
            f"Choose from {list(range(count))}.",
        )
    if n > len(chosen) and asked != "gloo":
        raise DeviceError(
            f"{n} ranks do not fit on {len(chosen)} GPU{'s' * (len(chosen) != 1)}: NCCL needs one GPU per rank.",
            f'Use backend="gloo" (ranks then compute on the CPU), or at most {len(chosen)} ranks.',
        )
    warnings: tuple[str, ...] = ()
    backend = asked or "nccl"
    if backend == "nccl" and not nccl():
        backend, warnings = "gloo", ("this torch was built without NCCL: falling back to gloo.",)
    # CUDA_VISIBLE_DEVICES as the user has set it stays in force: a choice indexes into it.
    environment = {}
    if devices is not None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = visible.split(",") if visible else [str(device) for device in range(count)]
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(names[device] for device in chosen[:n])
    return Plan(
        backend,
        tuple(f"cuda:{rank % len(chosen)}" for rank in range(n)),
        environment,
        warnings,
        asked is not None or backend == "gloo",
    )
