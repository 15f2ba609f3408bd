"""The ranks of a job that was started elsewhere, monitored from here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TextIO

from ddpnb.ranks.jobs.job_processes import JobProcesses, job_endings
from ddpnb.world.ranks import Ranks
from ddpnb.world.run_monitor import RunMonitor


def monitor_job(
    processes: JobProcesses,
    ranks: Sequence[int],
    patience: float,
    *,
    end_after_patience: bool = False,
    say: Callable[[str], None] | None = None,
    log_dir: str | None = None,
    stream: TextIO | None = None,
    launch_s: float = 0.0,
    logs_are_removed: bool = True,
) -> RunMonitor:
    """Monitor these ranks until the outcome of their program is known.

    Args:
        processes: of the ranks.
        ranks: all of the world, also those that were not seen on this host.
        patience: seconds that a rank may be blocked outside any collective.
        end_after_patience, say: as for ``RunMonitor``.
        log_dir: folder with the output of each rank, None: that of the job.
        stream: where to print the output; None: nowhere.
        launch_s: how long the launch took.
        logs_are_removed: with the job.
    """
    folder = processes.folder
    monitor = RunMonitor(
        processes,
        folder,
        1,
        log_dir or folder,
        ranks,
        job_endings(folder, ranks),
        patience=patience,
        end_after_patience=end_after_patience,
        say=say,
        stream=stream,
        launch_s=launch_s,
        leave_after_crash=True,
        logs_are_removed=logs_are_removed,
    )
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
