"""Ranks that are forked from one process with torch imported: they start sooner, and share its hash seed."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping

from ddpnb.files import write_private
from ddpnb.inject import fork_ranks
from ddpnb.model import status_file
from ddpnb.processes import descendants
from ddpnb.processes.jobs.parents import NoParent, Parent, Parents
from ddpnb.processes.jobs.spawned import START_S, Program, SpawnedProcesses
from ddpnb.recorder import protocol

_PARENT = -1  # stands for the process that forks, among the ranks


class ForkedProcesses(SpawnedProcesses):
    """One process per rank, forked from another that runs nothing else.

    Args:
        folder, program, logs, directory: as for ``SpawnedProcesses``.
        parents: fork the process that forks them; None: it is started by itself.
    """

    def __init__(
        self, folder: str, program: Program, logs: Mapping[int, str], directory: str, parents: Parents | None = None
    ) -> None:
        super().__init__(folder, program, {**logs, _PARENT: os.path.join(folder, "fork.log")}, directory)
        self._order = {
            "folder": folder,
            "script": program.script,
            "arguments": program.arguments,
            "module": program.module,
        }
        self._path = os.path.join(folder, "fork.json")
        self._command = [program.python, fork_ranks.__file__, self._path]
        self._pids: dict[int, int] = {}
        self._parents = parents
        self._parent: Parent | None = None

    def start(self, environments: Mapping[int, dict[str, str]], timeout: float = START_S) -> None:
        # With a rank, also the only one, the process that forks would take itself for that rank.
        everything = (
            set(environment.items()) - {("RANK", environment["RANK"])} for environment in environments.values()
        )
        common = set.intersection(*everything)
        ranks = {
            rank: {"variables": dict(set(environment.items()) - common), "log": self._logs[rank]}
            for rank, environment in environments.items()
        }
        for rank, environment in environments.items():
            self._devices[rank] = environment.get(protocol.DEVICE, "")
        write_private(self._path, json.dumps({**self._order, "ranks": ranks}))
        super().start({_PARENT: dict(common)}, timeout)

    def _start(self, rank: int, environment: dict[str, str]) -> None:
        if self._parents is not None:
            with contextlib.suppress(NoParent):
                self._parent = self._parents.start(self._path, environment, self._directory, self._logs[rank])
                self._children[rank] = self._parent
                return
        super()._start(rank, environment)

    @property
    def is_lost(self) -> bool:
        """Whether they were killed because a process died that has nothing to do with them: it forked their parent."""
        return self._parent is not None and self._parent.is_lost

    def _marks(self, environment: dict[str, str]) -> dict[str, str]:
        return environment  # the one that forks is no rank

    def pid(self, rank: int) -> int:
        if rank == _PARENT:
            return super().pid(rank)
        if rank not in self._pids:
            number = self._number(rank, "pid")
            if number is None:
                return 0
            self._pids[rank] = number
        return self._pids[rank]

    def exit_status(self, rank: int) -> int | None:
        own = super().exit_status(_PARENT)
        if rank == _PARENT:
            return own
        status = self._number(rank, "exit")
        if status is None and own is not None:  # there was no room to write it
            left = status_file.read(self.folder, rank).status
            status = (own or 1) if left is None else left
        return status

    def alive(self, rank: int) -> bool:
        return self.pid(rank) > 0 and super().alive(rank)

    def kill(self, rank: int) -> None:
        if rank == _PARENT:
            super().kill(rank)
        elif self.pid(rank) and self.exit_status(rank) is None:
            descendants.end([self.pid(rank)])

    def _number(self, rank: int, kind: str) -> int | None:
        try:
            with open(os.path.join(self.folder, f"rank{rank}.{kind}")) as file:
                return int(file.read(20))
        except (OSError, ValueError):
            return None
