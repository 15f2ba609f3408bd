"""The ranks of one start of a process group, found in the folder of their job."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import psutil

from ddpnb.ranks import sockets
from ddpnb.ranks.jobs.exits import Exits, exit_status
from ddpnb.ranks.process_samples import GONE, STOPPED, command_of, kernel_status
from ddpnb.ranks.rank_processes import RankView
from ddpnb.recording import protocol, status_file
from ddpnb.recording.ending import UNKNOWN_SIGNAL, UNKNOWN_STATUS, Ending
from ddpnb.recording.messages import tracebacks
from ddpnb.recording.names import UNDECODABLE, given_name

_LIMIT = 64 << 10  # bytes of a rank's description
_WRITTEN_S = 0.1  # for a parent to write the status of a process after it has waited for it
_ENDED = (-signal.SIGKILL, -signal.SIGTERM)
# What faulthandler calls the signals that it writes a stack for.
_SIGNALS = {
    b"Segmentation fault": signal.SIGSEGV,
    b"Aborted": signal.SIGABRT,
    b"Bus error": signal.SIGBUS,
    b"Floating-point exception": signal.SIGFPE,
    b"Illegal inst": signal.SIGILL,
}
_CRASH = re.compile(rb"Fatal Python error: (" + b"|".join(_SIGNALS) + rb")")
_CRASH_LIMIT = 1 << 20
_RAISED_LIMIT = 1 << 20
_MOST_FILES = 100
_HELPERS = re.compile(r"from multiprocessing\.(resource_tracker|forkserver) import")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a rank says of itself (``recorder.plain``)."""

    rank: int
    pid: int
    size: int
    started: int = 0  # in the kernel's ticks
    local_size: int = 0
    device: str = ""
    address: str = ""
    directory: str = ""
    command: tuple[str, ...] = ()
    host: str = ""
    here: bool = True  # its process ID means a process that this one sees
    start: str = ""  # of its process group, as its folder was named
    clock: tuple[int, int] = (0, 0)  # its host's monotonic clock and the time since the epoch, at one moment
    visible_devices: str = ""  # CUDA_VISIBLE_DEVICES
    place: str = ""  # see ``protocol.place``
    parent: tuple[int, int] = (0, 0)  # the process that has started it, and when that began


def identity(folder: str, rank: int) -> Identity | None:
    """Who this rank is; None before it is one."""
    try:
        with open(os.path.join(folder, f"rank{rank}.json"), encoding="utf-8") as file:
            told = json.loads(file.read(_LIMIT))
        return Identity(
            rank,
            int(told["pid"]),
            int(told["size"]),
            int(told["started"]),
            int(told["local_size"]),
            str(told["device"]),
            str(told["address"]),
            str(told["directory"]),
            tuple(map(str, told["command"])),
            given_name(told["host"]),
            told["place"] == protocol.place(),
            given_name(told["start"]),
            (int(told["clock"][0]), int(told["clock"][1])),
            str(told.get("visible_devices", "")),
            str(told["place"]),
            (int(told["parent"][0]), int(told["parent"][1])) if "parent" in told else (0, 0),
        )
    except (OSError, *UNDECODABLE):
        return None


def identities(folder: str) -> dict[int, Identity]:
    """The ranks with files in this folder."""
    return {rank: who for rank in _ranks_in(folder) if (who := identity(folder, rank)) is not None}


def _ranks_in(folder: str) -> list[int]:
    names = os.listdir(folder) if os.path.isdir(folder) else []
    ranks = (name[4:-5] for name in sorted(names) if name.startswith("rank") and name.endswith(".json"))
    return [int(rank) for rank in ranks if rank.isdecimal()]


def job_endings(folder: str, ranks: Iterable[int]) -> dict[int, str]:
    """For each rank the file that says how its program ended."""
    return {rank: os.path.join(folder, f"rank{rank}.end.json") for rank in ranks}


def ended(folder: str, rank: int) -> bool:
    """Whether the program of the rank has ended: its process ends too."""
    return (
        os.path.exists(os.path.join(folder, f"rank{rank}.end.json"))
        or status_file.read(folder, rank).ending is not None
    )


def _raised(job: str, parent: int, ranks: set[int]) -> Iterator[Ending]:
    """How those of the processes that one had started by multiprocessing ended which were no ranks when they failed."""
    names = os.listdir(job) if os.path.isdir(job) else []
    for name in sorted(name for name in names if name.startswith("raised-"))[:_MOST_FILES]:
        pid = name.removeprefix("raised-")
        if not pid.isdecimal() or int(pid) in ranks:
            continue
        try:
            with open(protocol.raised_file(job, int(pid)), encoding="utf-8") as file:
                told = json.loads(file.read(_RAISED_LIMIT))
            if int(told["parent"]) == parent:
                text = str(told["text"])
                for error in tracebacks.read(text)[-1:]:
                    yield Ending("raised", 1, error.exception, error.message, error.frames, text, int(told["at_ns"]))
        except (OSError, *UNDECODABLE):
            continue


def _others_live(job: str, ranks: set[int]) -> bool:
    """Whether a job has processes besides its ranks, what has started these, and what these or ``multiprocessing`` start."""
    ranks = {rank for rank in ranks if psutil.pid_exists(rank)}
    if not ranks:
        return False
    first = psutil.Process(min(ranks))
    root = [first, *takewhile(lambda one: protocol.job_folder(one.environ()) == job, first.parents())][-1]
    known = ranks | {one.pid for rank in ranks for one in _around(rank)}
    return any(
        one.pid not in known and one.status() != psutil.STATUS_ZOMBIE and not _HELPERS.search(" ".join(one.cmdline()))
        for one in root.children(recursive=True)
    )


def _around(rank: int) -> list[psutil.Process]:
    """What has started a rank, and what it has started."""
    process = psutil.Process(rank)
    return [*process.parents(), *process.children(recursive=True)]


class JobProcesses(RankView):
    """Ranks that somebody else has started.

    Args:
        folder: of their process group.
        exits: how it is known how they ended.
    """

    ends_with_script = True

    def __init__(self, folder: str, exits: ExitRule | None = None) -> None:
        self.folder = folder
        self._rule = exits if exits is not None else WATCHED
        self._known: dict[int, Identity] = {}
        self._exits = Exits()
        self._statuses: dict[int, int] = {}  # of processes
        self._gone: dict[int, float] = {}  # process ID -> when it was first seen to have ended, without a status

    def identity(self, rank: int) -> Identity | None:
        """Who this rank is; None before it is one."""
        if rank not in self._known:
            found = identity(self.folder, rank)
            if found is not None:
                self._known[rank] = found
                if found.here:
                    self._exits.watch(found.pid)
        return self._known.get(rank)

    def found(self) -> dict[int, Identity]:
        """The ranks that there have been by now, also those whose files are removed."""
        ranks = sorted({*self._known, *_ranks_in(self.folder)})
        return {rank: known for rank in ranks if (known := self.identity(rank)) is not None}

    # -- state

    def pid(self, rank: int) -> int:
        known = self.identity(rank)
        return known.pid if known is not None and (not self._rule.living or self.alive(rank)) else 0

    def device(self, rank: int) -> str:
        known = self.identity(rank)
        return known.device if known is not None else ""

    def visible_devices(self, rank: int) -> str | None:
        known = self.identity(rank)
        return known.visible_devices if known is not None else None

    def listens(self, rank: int) -> bool:
        return self.identity(rank) is not None and (not self._rule.living or self.alive(rank))

    def alive(self, rank: int) -> bool:
        known = self.identity(rank)
        return (
            known is not None
            and known.here
            and kernel_status(known.pid) != GONE
            and protocol.started(known.pid) == known.started
        )

    def stopped(self, rank: int) -> bool:
        pid = self.pid(rank)
        return pid > 0 and kernel_status(pid) in STOPPED

    def exit_status(self, rank: int) -> int | None:
        known = self.identity(rank)
        if known is None or self.alive(rank):
            return None
        if known.pid not in self._statuses:
            told = (one(self, known) for one in self._rule.sources)
            status = next((status for status in told if status is not None), None)
            if status is None:
                return None
            self._statuses[known.pid] = status
        return self._statuses[known.pid]

    def parent_of(self, rank: int) -> str:
        known = self.identity(rank)
        pid, began = known.parent if known is not None and known.here else (0, 0)
        lives = pid and protocol.started(pid) == began and protocol.lives(str(pid))
        return f"process {pid} ({command_of(pid)})" if lives else ""

    def before_joining(self, rank: int) -> Ending | None:
        found = self.found()
        parents = {known.parent[0] for known in found.values()}
        sizes = {known.size for known in found.values()}
        if len(parents) != 1 or len(sizes) != 1 or {*range(sizes.pop())} - found.keys() != {rank}:
            return None  # more are missing: which of them it was to be is not known
        ranks = {known.pid for known in found.values()}
        raised = list(_raised(os.path.dirname(self.folder), parents.pop(), ranks))
        return raised[0] if len(raised) == 1 else None

    def joined(self, rank: int) -> bool:
        return self.identity(rank) is not None

    def may_come(self) -> bool:
        """Whether a process may still become a rank that is missing: one of the job that is none, or one on another host."""
        found = self.found()
        if not found or any(
            not known.here or (known.local_size or known.size) < known.size for known in found.values()
        ):
            return True
        try:
            return _others_live(os.path.dirname(self.folder), {known.pid for known in found.values()})
        except psutil.Error:
            return True

    # -- what says how one has ended

    def _noted(self, known: Identity) -> int | None:
        return self._exits.statuses.get(known.pid)

    def _of_kernel(self, known: Identity) -> int | None:
        return exit_status(known.pid) if known.here else None  # nobody has waited for it yet

    def _of_kernel_but_ended(self, known: Identity) -> int | None:
        """The same, unless somebody has ended it: that is seen by chance, mostly nobody sees it."""
        status = self._of_kernel(known)
        return None if status in _ENDED else status

    def _of_parent(self, known: Identity) -> int | None:
        """The status that the process which had started it has written (``inject.children``)."""
        try:
            with open(protocol.exit_file(os.path.dirname(self.folder), known.pid)) as file:
                status = int(file.read(8))
        except (OSError, ValueError):
            return None
        return status if -signal.NSIG < status < 256 else None

    def _of_page(self, known: Identity) -> int | None:
        return status_file.read(self.folder, known.rank).status

    def _of_crash(self, known: Identity) -> int | None:
        """The signal for which faulthandler wrote a stack."""
        try:
            with open(os.path.join(self.folder, f"rank{known.rank}.crash"), "rb") as file:
                found = _CRASH.search(file.read(_CRASH_LIMIT))
        except OSError:
            return None
        return -_SIGNALS[found[1]] if found else None

    def _unknown(self, known: Identity) -> int | None:
        """Nobody knows: after a moment, in which its parent may write it."""
        since = self._gone.setdefault(known.pid, time.monotonic())
        return None if time.monotonic() - since < _WRITTEN_S else self._rule.unknown

    def _unknown_if_said(self, known: Identity) -> int | None:
        """Nobody knows, and the rank has said that it ends; else it was ended from outside, or runs on another host."""
        return self._rule.unknown if ended(self.folder, known.rank) else None

    # -- requests

    def exchange(self, messages: Mapping[int, Mapping[str, Any]], timeout: float) -> dict[int, dict[str, Any]]:
        return sockets.ask_each(self.folder, messages, timeout)

    def close(self) -> None:
        """Use them no more from here; they are left alone."""


@dataclass(frozen=True, slots=True)
class ExitRule:
    """How it is known how ranks ended that are no children of this process.

    Attributes:
        sources: what is asked, in this order.
        unknown: the status of one of which nobody knows it.
        living: only a process that lives here has a process ID, and is asked for its stacks.
    """

    sources: tuple[Callable[[JobProcesses, Identity], int | None], ...]
    unknown: int = UNKNOWN_SIGNAL
    living: bool = False


#: of ranks that are watched
WATCHED = ExitRule(
    (
        JobProcesses._noted,
        JobProcesses._of_kernel,
        JobProcesses._of_parent,
        JobProcesses._of_page,
        JobProcesses._unknown,
    )
)
#: of ranks that are known from their files: their job may be over, or run on other hosts
RECORDED = ExitRule(
    (
        JobProcesses._of_kernel_but_ended,
        JobProcesses._of_page,
        JobProcesses._of_crash,
        JobProcesses._unknown_if_said,
    ),
    living=True,
)
#: of ranks without a recorder, which write no files
UNRECORDED = ExitRule((JobProcesses._noted, JobProcesses._of_kernel, JobProcesses._unknown), UNKNOWN_STATUS)
