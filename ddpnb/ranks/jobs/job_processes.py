"""The ranks of one start of a process group, found in the folder of their job."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ddpnb.ranks.jobs import sockets
from ddpnb.ranks.jobs.exits import Exits, exit_status
from ddpnb.ranks.process_samples import GONE, STOPPED, command_of, kernel_status
from ddpnb.ranks.rank_processes import RankView
from ddpnb.recording import protocol, status_file
from ddpnb.recording.ending import UNKNOWN_SIGNAL
from ddpnb.recording.names import UNDECODABLE, given_name

_LIMIT = 64 << 10  # bytes of a rank's description
_WRITTEN_S = 0.1  # for a parent to write the status of a process after it has waited for it


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


class JobProcesses(RankView):
    """Ranks that somebody else has started.

    Args:
        folder: of their process group.
    """

    ends_with_script = True

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._known: dict[int, Identity] = {}
        self._exits = Exits()
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
        """The ranks that there are by now."""
        return {rank: known for rank in _ranks_in(self.folder) if (known := self.identity(rank)) is not None}

    # -- state

    def pid(self, rank: int) -> int:
        known = self.identity(rank)
        return known.pid if known is not None else 0

    def device(self, rank: int) -> str:
        known = self.identity(rank)
        return known.device if known is not None else ""

    def visible_devices(self, rank: int) -> str | None:
        known = self.identity(rank)
        return known.visible_devices if known is not None else None

    def listens(self, rank: int) -> bool:
        return self.identity(rank) is not None

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
        if known.pid not in self._exits.statuses:
            status = exit_status(known.pid)  # nobody has waited for it yet
            if status is None:
                status = self._status_by_parent(known.pid)
            if status is None:
                status = status_file.read(self.folder, rank).status
            if status is None and time.monotonic() - self._gone.setdefault(known.pid, time.monotonic()) < _WRITTEN_S:
                return None
            self._exits.statuses.setdefault(known.pid, UNKNOWN_SIGNAL if status is None else status)
        return self._exits.statuses[known.pid]

    def _status_by_parent(self, pid: int) -> int | None:
        """The status that the process which had started it has written (``inject.children``)."""
        try:
            with open(protocol.exit_file(os.path.dirname(self.folder), pid)) as file:
                status = int(file.read(8))
        except (OSError, ValueError):
            return None
        return status if -signal.NSIG < status < 256 else None

    def parent_of(self, rank: int) -> str:
        known = self.identity(rank)
        if (
            known is None
            or not known.here
            or not known.parent[0]
            or protocol.started(known.parent[0]) != known.parent[1]
        ):
            return ""
        return (
            f"process {known.parent[0]} ({command_of(known.parent[0])})" if protocol.lives(str(known.parent[0])) else ""
        )

    # -- requests

    def exchange(self, messages: Mapping[int, Mapping[str, Any]], timeout: float) -> dict[int, dict[str, Any]]:
        return sockets.ask_each(self.folder, messages, timeout)

    def close(self) -> None:
        """Use them no more from here; they are left alone."""
