"""Finds the jobs that run on this host."""

from __future__ import annotations

import contextlib
import os

import psutil

from ddpnb.errors import UsageError
from ddpnb.ranks.folder import places
from ddpnb.ranks.jobs.found_job import FoundJob
from ddpnb.ranks.jobs.job_processes import Identity, JobProcesses, ended
from ddpnb.ranks.jobs.unrecorded import unrecorded_jobs, unrecorded_jobs_of
from ddpnb.ranks.remote.messages import way_to
from ddpnb.recording import protocol

_HINT = "ddpnb attach lists the jobs that run here."


def found_in(folder: str) -> list[FoundJob]:
    """The process groups in a folder (of a job, or of one process group) with ranks that live."""
    jobs: list[FoundJob] = []
    with contextlib.suppress(OSError):
        for path in [
            folder,
            *sorted(entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)),
        ]:
            processes = JobProcesses(path)
            followed = way_to(os.path.dirname(path)) is not None  # its ranks on other hosts, by the launcher
            known: dict[int, Identity] = {
                rank: who
                for rank, who in processes.found().items()
                if processes.alive(rank) or (followed and not who.here and not ended(path, rank))
            }
            if known:
                first = known[min(known)]
                pids = {rank: who.pid if who.here else 0 for rank, who in known.items()}
                jobs.append(FoundJob(path, pids, first.size, first.command, first.directory))
    return jobs


def all_jobs() -> list[FoundJob]:
    """The process groups of all jobs of this user on this host; those without a recorder come last."""
    return [*_recorded_jobs(), *unrecorded_jobs()]


def _recorded_jobs() -> list[FoundJob]:
    found: dict[str, FoundJob] = {}
    for place in places():
        with contextlib.suppress(OSError):
            for entry in os.scandir(place):
                if entry.is_dir(follow_symlinks=False):
                    found |= {job.folder: job for job in found_in(entry.path)}
    return list(found.values())


def job_of(target: str | int) -> FoundJob:
    """The process group that a folder or a process ID stands for.

    Raises:
        UsageError: there is none, it belongs to another user, or there are several.
    """
    if isinstance(target, int) or target.isdecimal():
        jobs, what = _of_process(int(target)), f"process {target}"
    else:
        if not os.path.isdir(target):
            raise UsageError(f"no job is at {target!r}: it has ended, or the path is another.", _HINT)
        if os.stat(target).st_uid != os.geteuid():
            raise UsageError(f"{target!r} belongs to another user.", "Attach to jobs of your own.")
        jobs, what = found_in(target), target
    if not jobs:
        raise UsageError(f"no rank of {what} runs.", _HINT)
    if len(jobs) > 1:
        if not jobs[0].recorded:
            listed = "\n  ".join(map(str, jobs))
            raise UsageError(
                f"{what} has started {len(jobs)} jobs.", f"Give the process ID of a rank of one of them:\n  {listed}"
            )
        folders = "; ".join(job.folder for job in jobs)
        raise UsageError(f"{what} has {len(jobs)} process groups.", f"Give the folder of one of them: {folders}")
    return jobs[0]


def _of_process(pid: int) -> list[FoundJob]:
    """The process groups of the job that this process launched or belongs to."""
    try:
        process = psutil.Process(pid)
        folder = protocol.job_folder(process.environ())
    except psutil.NoSuchProcess:
        raise UsageError(f"there is no process {pid}.", _HINT) from None
    except psutil.AccessDenied:
        raise UsageError(f"process {pid} belongs to another user.", "Attach to jobs of your own.") from None
    jobs = found_in(folder) if folder else []
    mine = [job for job in jobs if pid in job.ranks.values()]
    if mine or jobs:
        return mine or jobs
    try:
        return recorded_below(process) or unrecorded_jobs_of(pid)
    except psutil.NoSuchProcess:
        raise UsageError(f"process {pid} has just ended.", _HINT) from None


def recorded_below(process: psutil.Process) -> list[FoundJob]:
    """The recorded process groups with ranks among this process and those that it has started.

    Raises:
        psutil.NoSuchProcess: it has ended.
    """
    below = {process.pid, *(child.pid for child in process.children(recursive=True))}
    return [job for job in _recorded_jobs() if below & {*job.ranks.values()}]
