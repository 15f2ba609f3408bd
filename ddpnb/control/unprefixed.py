"""A Recording of a job that was started without ddpnb and runs here: stacks, and the dumps of flight recorders."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil

from ddpnb.control.inspection import Inspection
from ddpnb.control.job_ranks import JobRanks
from ddpnb.errors import UsageError
from ddpnb.model.recording import Recording
from ddpnb.processes import flight_recorders
from ddpnb.processes.flight_recorders import FlightRecorder
from ddpnb.processes.jobs.found_job import FoundJob
from ddpnb.processes.jobs.job_processes import JobProcesses
from ddpnb.processes.jobs.search import job_of
from ddpnb.processes.jobs.unrecorded_processes import UnrecordedProcesses
from ddpnb.reports import facts, files, flight_recorder, together

_FORMAT = "stacks read by py-spy"
_LOOK_S = 3.0  # beyond patience


def read(pids: Sequence[int], patience: float) -> Recording:
    """Watch the ranks of a job on this host for ``patience`` seconds, and record them.

    Ranks of NCCL whose flight recorder has a pipe (``TORCH_NCCL_DEBUG_INFO_PIPE_FILE``) are asked for a dump; dumps that they
    have written before are taken too.

    Args:
        pids: processes of the job: a launcher, or ranks.
        patience: seconds that a rank may be blocked.

    Returns:
        One Recording of all its ranks on this host.

    Raises:
        UsageError: these processes are of no job, or of several.
        WorldError: py-spy cannot read its processes.
    """
    found = [job_of(pid) for pid in pids]
    job = found[0]
    if any(other.ranks != job.ranks for other in found):
        listed = "\n  ".join(dict.fromkeys(map(str, found)))
        raise UsageError("these processes are of different jobs.", f"Give those of one of them:\n  {listed}")
    ranks = JobRanks(JobProcesses(job.folder) if job.recorded else UnrecordedProcesses(job), patience)
    try:
        with ThreadPoolExecutor(1, "ddpnb dumps") as pool:  # the ranks are watched meanwhile
            dumps = pool.submit(flight_recorders.dumps, [] if job.recorded else _recorders(job))
            run = ranks.last_run
            assert run is not None
            run.wait(patience + _LOOK_S)
            recording = run.recording or Inspection(ranks).snapshot()
            paths = dumps.result()
    finally:
        ranks.close()
    return _with_dumps(job, recording, list(paths.values())) if paths else recording


def _recorders(job: FoundJob) -> list[FlightRecorder]:
    found: list[FlightRecorder] = []
    for rank, pid in job.ranks.items():
        try:
            process = psutil.Process(pid)
            found.append(FlightRecorder(rank, process.environ(), process.cwd(), process.create_time()))
        except (psutil.Error, OSError):  # it has just ended
            continue
    return found


def _with_dumps(job: FoundJob, recording: Recording, dumps: list[str]) -> Recording:
    """What the stacks and the dumps show together."""
    told: list[facts.Fact] = [facts.WorldSize(job.size)]
    for rank, record in recording.ranks.items():
        speaker = facts.Speaker(rank, record.pid)
        if record.pid:
            told.append(facts.Identity(speaker))
        if record.stacks:
            told.append(facts.StacksSeen(speaker, record.stacks, record.process.activity == "idle"))
        if record.ending is not None:
            told.append(facts.Ended(speaker, record.ending))
    found = [facts.Found(job.target, _FORMAT, tuple(told)), *flight_recorder.read(files.find(dumps))]
    return replace(together.recording(found), sources=recording.sources, taken_ns=recording.taken_ns)
