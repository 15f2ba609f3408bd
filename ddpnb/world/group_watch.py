"""One start of a process group by a command: its ranks are waited for, then monitored."""

from __future__ import annotations

import time
from collections.abc import Callable

from ddpnb.ranks.jobs.command import local_size
from ddpnb.ranks.jobs.job_processes import Identity, JobProcesses
from ddpnb.world.job_ranks import monitor_job
from ddpnb.world.run_monitor import RunMonitor


class GroupWatch:
    """The ranks of one start of a process group: gathered, then monitored.

    Args:
        processes: of its ranks.
        patience: seconds that a rank may be blocked outside any collective, and that further ranks are waited for.
        end_after_patience, say: as for ``RunMonitor``.
    """

    def __init__(
        self, processes: JobProcesses, patience: float, end_after_patience: bool, say: Callable[[str], None]
    ) -> None:
        self.processes = processes
        self.monitor: RunMonitor | None = None
        self._patience, self._end_after_patience, self._say = patience, end_after_patience, say
        self.is_followed = False  # it had ended when another one began: the command has continued
        self._count, self._since = 0, time.monotonic()
        self._stuck_since: float | None = None

    @property
    def begun(self) -> bool:
        """Whether a rank of it has been seen."""
        return self._count > 0

    @property
    def living(self) -> list[Identity]:
        """The ranks whose processes have not ended."""
        return [known for rank, known in self.processes.found().items() if self.processes.alive(rank)]

    @property
    def is_known(self) -> bool:
        """Whether its outcome is."""
        return self.monitor is not None and self.monitor.known.is_set()

    @property
    def hangs(self) -> bool:
        """Whether its ranks can never continue."""
        found = self.monitor.diagnosis if self.monitor is not None else None
        return found is not None and found.outcome == "hang" and found.settled

    @property
    def has_failed(self) -> bool:
        """Whether its outcome is known, and its ranks did not get to their end."""
        return self.monitor is not None and self.monitor.outcome in ("crash", "hang")

    @property
    def is_stuck(self) -> bool:
        """Whether its ranks can never continue, and nobody ends them: once a rank has failed, a launcher has some time to."""
        if self.monitor is None or not self.is_known or not self.hangs or not self.living:
            return False
        now = time.monotonic()
        self._stuck_since = self._stuck_since or now
        endings = map(self.monitor.observer.ending, self.monitor.ranks)
        failed = any(ending is not None and not ending.well for ending in endings)
        return not failed or now - self._stuck_since > self._patience

    def look(self) -> None:
        """Begin to monitor once all ranks of this host are there, or no more have come for some time."""
        if self.monitor is not None:
            return
        found, now = self.processes.found(), time.monotonic()
        if len(found) != self._count:
            self._count, self._since = len(found), now
        if not found:
            return
        ended = any(self.processes.exit_status(rank) is not None for rank in found)
        if len(found) >= local_size(self.processes) or ended or now - self._since > self._patience:
            size = max(known.size for known in found.values())
            self.monitor = monitor_job(
                self.processes, range(size), self._patience, end_after_patience=self._end_after_patience, say=self._say
            )
