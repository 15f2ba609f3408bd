"""The state of a rank's process as the host sees it: does it compute, is it stopped, where is it?

Nothing here asks the rank: /proc (through psutil) and py-spy, from this process.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sysconfig
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from ddpnb.model.recording import Activity, Child
from ddpnb.model.stacks import Frame, Stack
from ddpnb.recorder.user_frames import is_user_file

BUSY_SHARE = 0.05  # of one core, over the process and its children: above it somebody computes
BUSY_BYTES = 64 << 10  # read or written per second: above it somebody works on files
_AWAY_S = 1.0  # between two looks: the machine stood still, or had no core for us
_LOOKS = 3  # in a window, before the kernel's letter alone tells something
SHORT_S, LONG_S = 0.2, 1.0  # windows: to say what it does now, and to say that it did something


GONE = "gone"
STOPPED = ("T", "t")  # by a signal, by a debugger


@dataclass(frozen=True, slots=True)
class Sample:
    """A process and all that descends from it, at one moment."""

    status: str = GONE  # the kernel's letter, or GONE
    cpu_s: float = 0.0
    moved: float = 0.0  # bytes read and written
    family: tuple[tuple[int, str], ...] = ()  # its descendants: process and the kernel's letter
    memory: int = 0  # bytes that the process itself has in memory


def sample(pids: Iterable[int]) -> dict[int, Sample]:
    """One look at these processes and their descendants, in one pass over /proc."""
    table = _process_table()
    children: dict[int, list[int]] = defaultdict(list)
    for pid, (parent, _, _) in table.items():
        children[parent].append(pid)
    found = {}
    for pid in pids:
        if pid not in table or table[pid][1] in "ZX":
            found[pid] = Sample()
            continue
        family, cpu, moved = [pid], 0.0, 0.0
        for member in family:
            family += children.get(member, ())
            cpu += table[member][2]
            moved += _bytes_moved(member)
        below = tuple((member, table[member][1]) for member in family[1:])
        found[pid] = Sample(table[pid][1], cpu, moved, below, _memory(pid))
    return found


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
    except (OSError, IndexError, psutil.Error):
        return GONE
    return GONE if letter in "ZX" else letter


def stopped(pids: Mapping[int, int]) -> list[int]:
    """Of these ranks (rank -> process) those whose process is stopped, now."""
    return sorted(rank for rank, pid in pids.items() if kernel_status(pid) in STOPPED)


def _process_table() -> dict[int, tuple[int, str, float]]:
    """pid -> (parent, status letter, CPU seconds), of every process that we may see."""
    table: dict[int, tuple[int, str, float]] = {}
    if not os.path.isdir("/proc/self"):
        for process in psutil.process_iter(["ppid", "status", "cpu_times"]):
            times = process.info["cpu_times"]
            if times is not None:
                letter = _LETTERS.get(process.info["status"], "S")
                table[process.pid] = (process.info["ppid"], letter, times.user + times.system)
        return table
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            table[int(name)] = (int(fields[1]), fields[0].decode(), (int(fields[11]) + int(fields[12])) / _TICK)
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


class Watch:
    """Follows one process. Give it a sample every 0.05 s or more rarely."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Sample]] = deque()
        self.idle_since = time.monotonic()
        self.activity: Activity = "computing"

    def take(self, new: Sample) -> None:
        now = time.monotonic()
        away = now - self._samples[-1][0] if self._samples else 0.0
        if away > _AWAY_S:  # we were kept from looking, and so perhaps was it from running: that is no idleness
            self.idle_since = min(now, self.idle_since + away)
        self._samples.append((now, new))
        while len(self._samples) > 2 and now - self._samples[1][0] >= LONG_S:
            self._samples.popleft()
        if new.status == GONE:
            self.activity = "gone"
        elif self._busy(LONG_S, now):
            self.idle_since = now
        if new.status in STOPPED:
            self.activity = "stopped"
        elif new.status == "D":  # waiting for a disk is work in progress
            self.activity, self.idle_since = "computing", now
        elif new.status != GONE:
            self.activity = "computing" if self._busy(SHORT_S, now) else "idle"

    def _busy(self, window: float, now: float) -> bool:
        """Whether the process did something in the last ``window`` seconds, as far as is known."""
        newest = self._samples[-1][1]
        at, old = next(((t, s) for t, s in reversed(self._samples) if now - t >= window), self._samples[0])
        span = now - at
        if span < SHORT_S / 2:
            return True
        # Ready to run, look after look, and not run: the machine is short of cores, the process is not idle.
        seen = [s.status for t, s in self._samples if now - t <= window]
        if len(seen) >= _LOOKS and 2 * seen.count("R") > len(seen):
            return True
        # A child that ended takes its past with it: less than before is activity too. One tick of
        # the clock, which answering us may cost, is none.
        cpu = newest.cpu_s - old.cpu_s
        busy = cpu < 0 or cpu > max(BUSY_SHARE * span, 1.5 / _TICK)
        return busy or (newest.moved - old.moved) / span > BUSY_BYTES

    @property
    def memory(self) -> int:
        """Bytes that the process had in memory at the last look."""
        return self._samples[-1][1].memory if self._samples else 0

    @property
    def cores(self) -> float | None:
        """How many cores it and its children kept busy over the last looks, up to a second; None: not known yet."""
        if len(self._samples) < 2:
            return None
        (began, old), (ended, new) = self._samples[0], self._samples[-1]
        return max(0.0, new.cpu_s - old.cpu_s) / (ended - began) if ended > began else None

    @property
    def idle_s(self) -> float:
        return time.monotonic() - self.idle_since


OUTSIDE_S = 3.0  # that a look at one process from outside may take


def py_spy_stacks(pid: int, timeout: float = OUTSIDE_S) -> tuple[Stack, ...]:
    """The stacks of a process that does not answer, by ``py-spy dump``. Empty if that fails too."""
    command = shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")
    if command is None:
        return ()
    try:
        done = subprocess.run(
            [command, "dump", "--json", "--nonblocking", "--pid", str(pid)],
            capture_output=True, text=True, timeout=timeout, check=True,
        )  # fmt: skip
        threads = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
    return tuple(_stack(thread, pid) for thread in threads if isinstance(thread, dict))


MAX_CHILDREN, CHILDREN_S = 16, 2.0  # that are looked at, and how long that may take in all


def children(family: Sequence[tuple[int, str]], idle_s: float, end: float = math.inf) -> tuple[Child, ...]:
    """What the processes of a family (``Sample.family``) do, which have been idle as long as their parent.

    Their stacks are looked at until ``end``, by the monotonic clock.
    """
    end = min(end, time.monotonic() + CHILDREN_S)
    found: list[Child] = []
    for pid, letter in family[:MAX_CHILDREN]:
        left = end - time.monotonic()
        stacks = py_spy_stacks(pid, left) if letter not in ("Z", "X") and left > 0.05 else ()
        found.append(Child(pid, _command(pid), letter, idle_s, stacks))
    return tuple(found)


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(400).replace(b"\0", b" ").decode("utf-8", "replace").strip()[:200]
    except OSError:
        return ""


def _stack(thread: dict[str, Any], pid: int) -> Stack:
    frames = [
        Frame(
            str(frame.get("filename", "?")),
            int(frame.get("line") or 0),
            str(frame.get("name", "?")),
            is_user_file(str(frame.get("filename", "?"))),
        )
        for frame in reversed(thread.get("frames", []))
    ]
    main = thread.get("os_thread_id") in (pid, None) and thread.get("thread_name") in ("MainThread", None)
    name = str(thread.get("thread_name") or ("MainThread" if main else "?"))
    holds = thread.get("owns_gil") is True and thread.get("active") is False
    return Stack(name, tuple(frames), int(thread.get("thread_id") or 0) >> 6 & 0xFFFFFFFF, main, holds)
