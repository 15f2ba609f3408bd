"""The ranks of a job that was started elsewhere, monitored from here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddpnb.ranks.jobs.job_processes import JobProcesses, job_endings
from ddpnb.world.ranks import Ranks
from ddpnb.world.run_monitor import RunMonitor


def monitor_job(
    processes: JobProcesses, ranks: Sequence[int], patience: float, log_dir: str | None = None, **more: Any
) -> RunMonitor:
    """Monitor these ranks until the outcome of their program is known.

    Args:
        processes: of the ranks.
        ranks: all of the world, also those that were not seen on this host.
        patience: seconds that a rank may be blocked outside any collective.
        log_dir: folder with the output of each rank; None: that of the job.
        more: as for ``RunMonitor``.
    """
    folder, endings = processes.folder, job_endings(processes.folder, ranks)
    given = {"leave_after_crash": True, "logs_are_removed": True, **more}
    monitor = RunMonitor(processes, folder, 1, log_dir or folder, ranks, endings, patience=patience, **given)
    monitor.watch()
    return monitor


class JobRanks(Ranks):
    """The ranks of one process group of a job.

    Args:
        processes: of the ranks, of which one at least has been found.
        patience: as for ``monitor_job``.
    """

    def __init__(self, processes: JobProcesses, patience: float) -> None:
        found = processes.found()
        size = max(identity.size for identity in found.values())
        devices = "+".join(sorted({identity.device or "cpu" for identity in found.values()}))
        shown = devices if processes.recorded else "not recorded"
        super().__init__(size, processes, processes.folder, f"{size} ranks, {shown}")
        self.number = 1
        self.begun(monitor_job(processes, range(size), patience))
