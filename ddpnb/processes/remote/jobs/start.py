"""The ranks of one start of a process group on another host than its launcher, as the agent there sees them."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from ddpnb.files import private
from ddpnb.model import status_file
from ddpnb.processes import connections, py_spy, source_text
from ddpnb.processes.jobs import sockets
from ddpnb.processes.jobs.job_processes import JobProcesses, ended
from ddpnb.processes.process_samples import Sampler
from ddpnb.processes.remote.changes import OtherFiles, PagedFiles


class Start:
    """The ranks of one start of a process group on this host.

    Args:
        folder: with their files.
    """

    def __init__(self, folder: str) -> None:
        self.processes = JobProcesses(folder)
        self._folder = folder
        self._paged, self._others = PagedFiles(folder), OtherFiles(folder)
        self._ranks: dict[int, None] = {}

    @property
    def ranks(self) -> list[int]:
        """The ranks that have been here, also when their files are removed."""
        self._ranks |= dict.fromkeys(self.processes.found())
        return list(self._ranks)

    def done(self, *, alone: bool) -> set[int]:
        """The processes of ranks that have said how they end, if the launcher knows it too.

        Args:
            alone: there is no launcher any more.
        """
        return {
            self.processes.pid(rank)
            for rank in self.ranks
            if self._is_known(rank) or (alone and ended(self._folder, rank))
        }

    def _is_known(self, rank: int) -> bool:
        """Whether the launcher knows how the program of the rank has ended."""
        return status_file.decoded(self._paged.had(f"rank{rank}.status")).ending is not None

    def files(self, *, arrived: bool) -> dict[str, Any]:
        """What has changed in the files of its ranks."""
        return {"paged": self._paged.changes(arrived=arrived), "others": self._others.changes(arrived=arrived)}

    def let_go(self) -> None:
        """Let ranks end whose ending is known to the launcher."""
        for rank in self.ranks:
            if self._is_known(rank):
                with contextlib.suppress(OSError):
                    open(os.path.join(self._folder, f"rank{rank}.sent"), "x", opener=private).close()

    def answer(self, verb: str, given: list[Any]) -> Any:
        """What the launcher asks of these ranks."""
        if verb == "ask":
            requests, seconds = given
            return sockets.ask_each(self._folder, {int(rank): one for rank, one in requests.items()}, seconds)
        if verb == "stacks":
            return py_spy.plain_stacks(*given)
        if verb == "children":
            rank, seconds = given
            pid = self.processes.pid(rank)
            return py_spy.plain_children(Sampler().sample([pid])[pid].descendants, time.monotonic() + seconds)
        if verb == "connections":
            pids = {rank: self.processes.pid(rank) for rank in given[0]}
            rows = connections.of(pids.values())
            return {rank: rows[pid] for rank, pid in pids.items() if pid in rows}
        if verb == "source":
            return source_text.read_with_age(*given)
        if verb == "in_transit":
            return connections.in_transit({self.processes.pid(int(rank)): rows for rank, rows in given[0].items()})
        raise ValueError(f"no such verb: {verb}")
