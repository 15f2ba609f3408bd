"""Attach to a job that runs elsewhere: in a terminal, under any launcher."""

from __future__ import annotations

import os
from typing import Any, NoReturn, cast

from ddpnb.errors import UsageError
from ddpnb.ranks.jobs.found_job import FoundJob
from ddpnb.ranks.jobs.search import all_jobs, job_of
from ddpnb.ranks.jobs.unrecorded_processes import UnrecordedProcesses, not_recorded
from ddpnb.ranks.remote.job_ranks import attached
from ddpnb.recording import arguments
from ddpnb.recording.facts.patience import PATIENCE
from ddpnb.recording.findings import Diagnosis
from ddpnb.world.job_ranks import JobRanks
from ddpnb.world.live import LiveRanks
from ddpnb.world.run import Run


def attach(target: str | int | os.PathLike[str] | FoundJob, *, patience: float = PATIENCE) -> Job:
    """Attach to a job that runs on this host.

    The job continues. If it was started with ``ddpnb run``, its ranks can be inspected, held, stepped and released.
    Otherwise their stacks and variables are read from outside by py-spy, and the diagnosis says what follows from
    these, after ``patience``. ``ddpnb.show(job)`` shows the dashboard.

    Args:
        target: the folder that ``ddpnb run --keep`` or ``ddpnb attach`` prints, or the process ID of a rank or of the
            launch command.
        patience: seconds that a rank may be blocked outside any collective before it is reported as a hang.

    Returns:
        The job.

    Raises:
        UsageError: no such job runs, it belongs to another user, or there are several.
        WorldError: it was started without ``ddpnb run``, and py-spy cannot read its processes.

    Example:
        >>> job = ddpnb.attach(4711)
        >>> job.status()
    """
    arguments.seconds("patience", patience)
    if isinstance(target, bool) or not isinstance(target, (str, int, os.PathLike, FoundJob)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"attach() takes a folder or a process ID, not {arguments.short(target)}.")
    found = (
        target if isinstance(target, FoundJob) else job_of(target if isinstance(target, int) else os.fsdecode(target))
    )
    return Job(found, patience)


def jobs() -> list[FoundJob]:
    """The jobs of this user that run on this host: those with the recorder in them, then others.

    Returns:
        One entry for each process group, which ``attach()`` takes; ``recorded`` says whether the recorder runs in it.

    Example:
        >>> for job in ddpnb.jobs():
        ...     print(job)
    """
    return all_jobs()


class Job(LiveRanks):
    """A job that was started elsewhere, made by ``attach()``. It continues when this object is closed.

    Example:
        >>> with ddpnb.attach(4711) as job:
        ...     print(job.diagnosis)
        ...     job.release()
    """

    _name = "job"

    def __init__(self, found: FoundJob, patience: float) -> None:
        self._found = found
        self._processes = attached(found.folder) if found.recorded else UnrecordedProcesses(found)
        super().__init__(JobRanks(self._processes, patience))
        if not found.recorded:
            self._breakpoints = self._faults = self._releasing = cast("Any", _NotRecorded(found))

    @property
    def folder(self) -> str:
        """The folder of its ranks; empty if it is not recorded."""
        return self._found.folder

    @property
    def recorded(self) -> bool:
        """Whether the recorder runs in its ranks. If not, only their stacks and variables can be read."""
        return self._found.recorded

    @property
    def command(self) -> tuple[str, ...]:
        """The command line of its lowest rank."""
        return self._found.command

    @property
    def run(self) -> Run:
        """Its program as a run: outcome, findings, recording."""
        run = self.last_run
        assert run is not None
        return run

    @property
    def diagnosis(self) -> Diagnosis:
        """The findings of this moment, or those that ended the job: see ``Run.diagnosis``."""
        return self.run.diagnosis

    def close(self) -> None:
        """Detach: the job continues and is no longer watched from here.

        Example:
            >>> job.close()
        """
        self._ranks.close()
        self._processes.close()

    def __repr__(self) -> str:
        return f"<Job of {self._ranks.description}: {self.run.outcome}>"


class _NotRecorded:
    """Takes the place of what needs the recorder: holds, faults, release."""

    armed = ()  # a dashboard lists the holds

    def __init__(self, job: FoundJob) -> None:
        self._job = job

    def __getattr__(self, name: str) -> NoReturn:
        raise not_recorded(self._job)
