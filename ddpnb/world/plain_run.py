"""A script on ranks in plain processes of its own: what ``ddpnb run SCRIPT`` starts."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TextIO

from ddpnb.errors import UsageError
from ddpnb.ranks.devices import Plan
from ddpnb.ranks.environment import ReservedPort, debug_environment, rank_environment, working_directory
from ddpnb.ranks.folder import Folders
from ddpnb.ranks.forks import ForkServers
from ddpnb.ranks.jobs.injection import injected
from ddpnb.ranks.jobs.spawned import Program, SpawnedProcesses
from ddpnb.ranks.observe import logs
from ddpnb.recording.files import make_folder, private
from ddpnb.world.end_by_signal import StartedJob, grace_s

_TICK_S = 0.1


class PlainRun(StartedJob):
    """One script on fresh processes, one per rank. Use it as a context manager: the end of it ends the processes.

    Args:
        plan: the device of each rank.
        program: what each rank runs.
        fork: fork the ranks from one process with torch imported.
        fence, patience, end_after_patience, debug: as for ``launch()``.
        say: shows a warning; None: in the stream.
        port: MASTER_PORT; None: a free one.
        log_dir: folder for the complete output of each rank; None: one that is removed in the end.
        stream: where to print the output; None: nowhere.
        environment: to begin with; None: that of this process.
        directory: where the ranks run; None: where this process does.
        fork_servers: for runs with ``fork`` that follow one another; None: torch is imported for this one.

    Raises:
        LaunchError: there is no room, or the system refuses a process.
        UsageError: the port or the log folder cannot be used.
    """

    def __init__(
        self,
        plan: Plan,
        program: Program,
        *,
        fork: bool = False,
        fence: str,
        patience: float,
        end_after_patience: bool = False,
        say: Callable[[str], None] | None = None,
        debug: bool = False,
        port: int | None = None,
        log_dir: str | None = None,
        stream: TextIO | None = sys.stdout,
        environment: Mapping[str, str] | None = None,
        directory: str | None = None,
        fork_servers: ForkServers | None = None,
    ) -> None:
        began = time.monotonic()
        self._reached: set[int] = set()  # by a signal that was passed on
        ranks = range(len(plan.devices))
        directory = directory or working_directory()
        with ExitStack() as undo:
            reserved = ReservedPort(port)
            undo.callback(reserved.release)
            folders = Folders(len(ranks))
            undo.callback(folders.remove)
            log_folder = os.path.abspath(log_dir) if log_dir is not None else folders.log_dir(1)
            prepare_logs(log_folder, ranks)
            paths = {rank: os.path.join(log_folder, f"rank{rank}.log") for rank in ranks}
            if fork and fork_servers is None:
                fork_servers = ForkServers(folders.output)
                undo.callback(fork_servers.close)
            forks = fork_servers if fork else None
            self.processes = processes = SpawnedProcesses(folders.memory, program, paths, directory, forks)
            undo.callback(processes.stop)
            given = debug_environment(plan.backend) if debug else {}
            recorded = injected(os.environ if environment is None else environment, folders.memory, fence)
            threads = (environment or {}).get("OMP_NUM_THREADS")
            chosen = {"OMP_NUM_THREADS": threads} if threads else {}
            processes.start(
                {rank: {**recorded, **rank_environment(plan, rank, reserved.port, given), **chosen} for rank in ranks}
            )
            # While the ranks import torch: the diagnosis takes a while to import too.
            from ddpnb.world.job_ranks import monitor_job
            from ddpnb.world.run import Run

            monitor = monitor_job(
                processes,
                ranks,
                patience,
                end_after_patience=end_after_patience,
                say=say,
                log_dir=log_folder,
                stream=stream,
                launch_s=time.monotonic() - began,
                logs_are_removed=log_dir is None,
            )
            undo.callback(monitor.stop_watching)
            self.run = Run(monitor)
            self._end = undo.pop_all()

    @property
    def folder(self) -> str:
        """Where ``ddpnb.attach()`` finds the ranks."""
        return self.processes.folder

    @property
    def is_lost(self) -> bool:
        """Whether the ranks were killed for a reason that has nothing to do with them: they can run again."""
        return self.processes.is_lost

    def forward(self, number: int) -> None:
        """Give a signal to the ranks that there are."""
        self._reached.update(self.processes.send(number))

    @property
    def lives(self) -> bool:
        """Whether a rank that a signal has reached has not ended. The output up to now has been shown."""
        lives = any(self.processes.exit_status(rank) is None for rank in self._reached)
        self.run._monitor.show_output()
        return lives

    @property
    def grace_s(self) -> float:
        """How long ranks may take to end after a signal."""
        return grace_s()

    @property
    def own_status(self) -> None:
        """There is none, as of torchrun: the signal has ended the job, also where all ranks end with status 0."""

    def keep(self) -> None:
        """Leave ranks that hang as they are, until they end."""
        self.processes.keep_connections()

    def wait_for_end(self) -> None:
        """Wait until all processes have ended."""
        while any(self.processes.exit_status(rank) is None for rank in self.run.endings):
            time.sleep(_TICK_S)


def prepare_logs(folder: str, ranks: Sequence[int]) -> None:
    """Make the empty logs of a run; those of an earlier one are set aside.

    Raises:
        UsageError: the folder cannot be written.
    """
    try:
        make_folder(folder)
        logs.set_aside(folder)
        for rank in ranks:
            open(os.path.join(folder, f"rank{rank}.log"), "w", opener=private).close()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise UsageError(f"cannot write logs to {folder}: {reason}.", "Choose another log_dir.") from None
