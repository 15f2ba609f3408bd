"""The agent of a job on a host: follows the ranks there that something else has started.

The first rank on the host starts it (``inject.other_host``). It makes the folder of the job on this host, and answers the
launcher until that ends it, or all ranks here have ended. It ends no rank unless it is asked to.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from ddpnb.ranks import descendants
from ddpnb.ranks.jobs.job_processes import JobProcesses, ended
from ddpnb.ranks.jobs.kept_connections import KeptConnections
from ddpnb.ranks.locked_folder import LockedFolder
from ddpnb.ranks.remote.agent import Agent, RankProcess
from ddpnb.ranks.remote.changes import Files
from ddpnb.ranks.remote.messages import of_start
from ddpnb.recorder.inject import other_host
from ddpnb.recording import protocol, status_file
from ddpnb.recording.files import private


class _Start:
    """The ranks of one start of a process group on this host.

    Args:
        folder: with their files.
    """

    def __init__(self, folder: str) -> None:
        self.processes = JobProcesses(folder)
        self.files = Files(folder)
        self._folder = folder

    @property
    def ranks(self) -> list[int]:
        """The ranks that have been here, also when their files are removed."""
        return list(self.processes.found())

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
        return status_file.decoded(self.files.had(f"rank{rank}.status")).ending is not None

    def let_go(self) -> None:
        """Let ranks end whose ending is known to the launcher."""
        for rank in self.ranks:
            if self._is_known(rank):
                with contextlib.suppress(OSError):
                    open(os.path.join(self._folder, f"rank{rank}.sent"), "x", opener=private).close()


class JobAgent(Agent):
    """What the launcher of a job asks of this host.

    Args:
        folder: of the job on this host; it is made.
        job: the folder of the job on the launcher's host, which all its processes have in their environment.

    Raises:
        OSError: the folder cannot be made.
    """

    def __init__(self, folder: str, job: str) -> None:
        super().__init__()
        self._folder, self._job = LockedFolder.at(folder), job
        self._verbs |= {"forget": self.remove, "end": self._end}
        self._kept = KeptConnections(folder)
        self._starts: dict[str, _Start] = {}
        self._removed = False  # the files of the ranks: their endings are known
        self._shown = 0  # looks since then that have arrived

    def _processes(self) -> Iterator[RankProcess]:
        if not self._removed:
            for entry in os.scandir(self._folder.path):
                if of_start(entry.name) and entry.name not in self._starts:
                    self._starts[entry.name] = _Start(entry.path)
        for start in self._starts.values():
            known = start.processes
            for rank in start.ranks:
                status = partial(known.exit_status, rank)
                yield RankProcess(known.pid(rank), status, known.device(rank), known.visible_devices(rank))

    def _files(self, *, arrived: bool) -> dict[str, Any]:
        if self._removed and arrived and not self.some_live:
            self._shown += 1
        starts = {} if self._removed else self._starts
        return {"starts": {}, "folders": {name: one.files.changes(arrived=arrived) for name, one in starts.items()}}

    def _sockets(self, start: str) -> str:
        if not of_start(start):
            raise ValueError(f"no start of a process group: {start!r:.60}")
        return os.path.join(self._folder.path, start)

    # -- end

    def _end(self, everything: bool) -> None:
        if everything:
            descendants.end((), self._job, seconds=descendants.SOON_S)

    @property
    def some_live(self) -> bool:
        """Whether a process that has joined lives, as far as it has not said how it ends."""
        return any(start.processes.alive(rank) for start in self._starts.values() for rank in start.ranks) or any(
            protocol.lives(pid) for pid in self._joined()
        )

    def _joined(self) -> list[str]:
        """The processes that have joined the job."""
        try:
            names = os.listdir(self._folder.path)
        except OSError:
            return []
        return [name.removeprefix(protocol.JOINED) for name in names if name.startswith(protocol.JOINED)]

    def settle(self) -> bool:
        """Remove the files once it is known how all ranks end, while these wait for it; else let those end of which it is.

        With its last rank, a scheduler ends everything on a host, this agent included. There is nothing more to do when all
        ranks have ended, and the launcher has had the time to see who waits for them, or is gone.
        """
        if not self._removed and self._all_done():
            fd = os.open(other_host.lock_of(self._folder.path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._all_done():  # no process has joined meanwhile
                    self.remove()
                os.unlink(other_host.lock_of(self._folder.path))
            except OSError:  # one is about to
                pass
            finally:
                os.close(fd)
        if not self._removed:
            for start in self._starts.values():
                start.let_go()
        return self._removed and not self.some_live and (self._alone or (self._shown > 1 and not self._kept.any))

    def _all_done(self) -> bool:
        joined = self._joined()
        done = {str(pid) for start in self._starts.values() for pid in start.done(alone=self._alone)}
        return bool(joined) and all(pid in done or not protocol.lives(pid) for pid in joined)

    def remove(self) -> None:
        """Remove the files; ranks that live keep what they have open."""
        self._removed = True
        self._folder.remove()

    def close(self) -> None:
        if not self._removed:  # else there may be another agent by now
            self._folder.remove()
