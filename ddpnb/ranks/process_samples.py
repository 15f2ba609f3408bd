"""What a process does according to the kernel: whether it computes, is idle, or is stopped. The process is not asked."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import psutil

from ddpnb.recording import protocol
from ddpnb.recording.recording import Activity

_BUSY_SHARE = 0.05  # of one core, for a process and its children: more counts as computing
_BUSY_BYTES = 64 << 10  # read or written per second: more counts as computing
_AWAY_S = 1.0  # between two samples: the machine stood still, or had no core for us
_ENOUGH = 3  # samples in a window, from which on the kernel's letter alone counts
_SHORT_S, _LONG_S = 0.2, 1.0  # windows: for what the process does now, and for whether it did anything
_PASS_S, _PASS_IDLE_S = 1.0, 0.15  # between two passes over all processes; the same once one of ours does not compute

Entry = tuple[int, str, float]  # of a process: its parent, the kernel's letter, CPU seconds

GONE = "gone"
STOPPED = ("T", "t")  # by a signal, by a debugger


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """A process and its descendants at one moment."""

    status: str = GONE  # the kernel's letter, or GONE
    cpu_s: float = 0.0
    moved: float = 0.0  # bytes read and written
    descendants: tuple[tuple[int, str], ...] = ()  # process ID and the kernel's letter
    memory: int = 0  # bytes of the process itself
    own_s: float = 0.0  # of ``cpu_s``: what it has used to answer us


def sample(pids: Iterable[int]) -> dict[int, ProcessSample]:
    """Sample these processes and their descendants, in one pass over /proc."""
    return Sampler().sample(pids)


class Sampler:
    """Samples the same processes again and again.

    Only a pass over all of /proc finds new descendants, and that is what a sample costs. While each process and its known
    descendants compute, there is such a pass now and then: a process counts as idle only after one.
    """

    def __init__(self) -> None:
        self._families: dict[int, list[int]] = {}  # each process and its descendants, as of the last pass
        self._cpu: dict[int, float] = {}
        self._passed_at, self._took = -math.inf, 0.0

    def sample(self, pids: Iterable[int]) -> dict[int, ProcessSample]:
        """Sample these processes and their descendants."""
        wanted = list(pids)
        now = time.monotonic()
        age = now - self._passed_at
        table: dict[int, Entry] = {}
        if age < max(_PASS_S, 50 * self._took) and all(pid in self._families for pid in wanted):
            table = _entries({member for pid in wanted for member in self._families[pid]})
            idle = any(self._cpu_of(pid, table) <= self._cpu[pid] for pid in wanted)
            if idle and age >= max(_PASS_IDLE_S, 10 * self._took):
                table = {}
        if not table:
            # On a Linux without /proc nothing is known of any: what exists counts as if it waited for a disk, never as idle.
            table = _process_table() or {pid: (0, "D", 0.0) for pid in wanted if protocol.exists(pid)}
            self._families = _families(wanted, table)
            self._passed_at, self._took = now, time.monotonic() - now
        self._cpu = {pid: self._cpu_of(pid, table) for pid in wanted}
        return {pid: self._sample_of(pid, table) for pid in wanted}

    def _cpu_of(self, pid: int, table: Mapping[int, Entry]) -> float:
        return sum(table[member][2] for member in self._families[pid] if member in table)

    def _sample_of(self, pid: int, table: Mapping[int, Entry]) -> ProcessSample:
        if pid not in table or table[pid][1] in "ZX":
            return ProcessSample()
        family = [member for member in self._families[pid] if member in table]
        below = tuple((member, table[member][1]) for member in family[1:])
        moved = sum(map(_bytes_moved, family))
        return ProcessSample(table[pid][1], self._cpu[pid], moved, below, _memory(pid))


def queued(pid: int) -> tuple[int, int] | None:
    """A moment of the monotonic clock, and how long the main thread of a process of this host has waited for a core by then."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            return time.monotonic_ns(), int(file.read(200).split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _families(pids: Iterable[int], table: Mapping[int, Entry]) -> dict[int, list[int]]:
    """Each of these processes with its descendants."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid, (parent, _, _) in table.items():
        children[parent].append(pid)
    families: dict[int, list[int]] = {}
    for pid in pids:
        family = families[pid] = [pid]
        for member in family:
            family += children.get(member, ())
    return families


_TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_LETTERS = {
    psutil.STATUS_STOPPED: "T",
    psutil.STATUS_TRACING_STOP: "t",
    psutil.STATUS_ZOMBIE: "Z",
    psutil.STATUS_DISK_SLEEP: "D",
}


def kernel_status(pid: int) -> str:
    """The kernel's letter for one process; GONE also for one that has ended and was not waited for yet."""
    try:
        if not os.path.isdir("/proc/self"):
            letter = _LETTERS.get(psutil.Process(pid).status(), "S")
        else:
            with open(f"/proc/{pid}/stat", "rb") as file:
                letter = file.read().rpartition(b")")[2].split()[0].decode()
    except psutil.Error:  # also of a Linux without /proc
        return "S" if protocol.exists(pid) else GONE
    except (OSError, IndexError):
        return GONE
    return GONE if letter in "ZX" else letter


def all_processes(*attributes: list[str]) -> Iterator[psutil.Process]:
    """Every process that we may see, as ``psutil.process_iter``; none on a Linux without /proc."""
    with contextlib.suppress(IndexError):  # by which psutil says so
        yield from psutil.process_iter(*attributes)


def _process_table() -> dict[int, Entry]:
    """Every process that we may see."""
    if not os.path.isdir("/proc/self"):
        table: dict[int, Entry] = {}
        for process in all_processes(["ppid", "status", "cpu_times"]):
            times = process.info["cpu_times"]
            if times is not None:
                letter = _LETTERS.get(process.info["status"], "S")
                table[process.pid] = (process.info["ppid"], letter, times.user + times.system)
        return table
    return _entries(int(name) for name in os.listdir("/proc") if name.isdigit())


def _entries(pids: Iterable[int]) -> dict[int, Entry]:
    """Those of these processes that exist, according to /proc."""
    table: dict[int, Entry] = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        table[pid] = (int(fields[1]), fields[0].decode(), (int(fields[11]) + int(fields[12])) / _TICK)
    return table


def _bytes_moved(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            lines = file.read().split()
        return float(int(lines[1]) + int(lines[3]))
    except (OSError, ValueError, IndexError):
        return 0.0


def _memory(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


class ActivityTracker:
    """The activity of one process, from samples taken every 0.05 s or more rarely."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, ProcessSample]] = deque()
        self.idle_since = time.monotonic()
        self.activity: Activity = "computing"

    def add(self, new: ProcessSample) -> None:
        """Add the sample of this moment."""
        now = time.monotonic()
        away = now - self._samples[-1][0] if self._samples else 0.0
        if away > _AWAY_S:  # we could not run, and perhaps the process could not either: that is not idleness
            self.idle_since = min(now, self.idle_since + away)
        self._samples.append((now, new))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _LONG_S:
            self._samples.popleft()
        if new.status == GONE:
            self.activity = "gone"
        elif self._busy(_LONG_S, now):
            self.idle_since = now
        if new.status in STOPPED:
            self.activity = "stopped"
        elif new.status == "D":  # waiting for a disk is work in progress
            self.activity, self.idle_since = "computing", now
        elif new.status != GONE:
            self.activity = "computing" if self._busy(_SHORT_S, now) else "idle"

    def _busy(self, window: float, now: float) -> bool:
        """Whether the process did something in the last ``window`` seconds, as far as is known."""
        newest = self._samples[-1][1]
        at, old = next(((t, s) for t, s in reversed(self._samples) if now - t >= window), self._samples[0])
        span = now - at
        if span < _SHORT_S / 2:
            return True
        # Ready to run in most samples, without running: the machine is short of cores, the process is not idle.
        letters = [s.status for t, s in self._samples if now - t <= window]
        if len(letters) >= _ENOUGH and 2 * letters.count("R") > len(letters):
            return True
        # A child that ended takes its CPU time with it: less than before is activity too. One tick of the clock is not.
        cpu = newest.cpu_s - old.cpu_s
        busy = cpu < 0 or cpu - (newest.own_s - old.own_s) > max(_BUSY_SHARE * span, 1.5 / _TICK)
        return busy or (newest.moved - old.moved) / span > _BUSY_BYTES

    @property
    def memory(self) -> int:
        """Bytes of the process in memory in the last sample."""
        return self._samples[-1][1].memory if self._samples else 0

    @property
    def cores(self) -> float | None:
        """How many cores it and its children used over the last second at most; None: not known yet."""
        if len(self._samples) < 2:
            return None
        (began, old), (ended, new) = self._samples[0], self._samples[-1]
        return max(0.0, new.cpu_s - old.cpu_s) / (ended - began) if ended > began else None

    @property
    def idle_s(self) -> float:
        """For how many seconds it has been idle."""
        return time.monotonic() - self.idle_since


def command_of(pid: int, most: int = 120) -> str:
    """The command line of a process, or its beginning; ``?``: it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(most).replace(b"\0", b" ").decode("utf-8", "replace").strip() or "?"
    except OSError:
        return "?"
