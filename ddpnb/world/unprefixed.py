"""A Recording of a job that was started without ddpnb and runs here: stacks, dumps of flight recorders, what NCCL counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil

from ddpnb.errors import UsageError
from ddpnb.ranks import flight_recorders
from ddpnb.ranks.flight_recorders import FlightRecorder
from ddpnb.ranks.jobs.found_job import FoundJob
from ddpnb.ranks.jobs.job_processes import JobProcesses
from ddpnb.ranks.jobs.search import job_of
from ddpnb.ranks.jobs.unrecorded_processes import UnrecordedProcesses
from ddpnb.recording.recording import Recording
from ddpnb.reports import facts, files, flight_recorder, together
from ddpnb.world import nccl_status
from ddpnb.world.inspection import InspectedRanks
from ddpnb.world.job_ranks import JobRanks

_FORMAT = "stacks read by py-spy"
_LOOK_S = 3.0  # beyond patience


def read(pids: Sequence[int], patience: float) -> Recording:
    """Watch the ranks of a job on this host for ``patience`` seconds, and record them.

    Ranks of NCCL whose flight recorder has a pipe (``TORCH_NCCL_DEBUG_INFO_PIPE_FILE``) are asked for a dump; dumps that they
    have written before are taken too. NCCL's RAS service is asked at the begin and at the end.

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
        unrecorded = {} if job.recorded else job.ranks
        with ThreadPoolExecutor(2, "ddpnb dumps") as pool:  # the ranks are watched meanwhile
            dumps = pool.submit(flight_recorders.dumps, _recorders(unrecorded))
            first = pool.submit(nccl_status.ask, unrecorded.values())
            run = ranks.last_run
            assert run is not None
            run.wait(patience + _LOOK_S)
            recording = run.recording or InspectedRanks(ranks).snapshot()
            paths, earlier = dumps.result(), first.result()
    finally:
        ranks.close()
    return joined(job, recording, earlier, list(paths.values()))


def joined(
    job: FoundJob, recording: Recording, earlier: nccl_status.Answer | None, dumps: Sequence[str] = ()
) -> Recording:
    """A Recording of stacks, with what dumps and NCCL's RAS service say of the same ranks.

    Args:
        job: that was started without ddpnb.
        recording: of its stacks.
        earlier: what the service answered some time before: only counts that stay are those of a hang.
        dumps: paths.
    """
    found = flight_recorder.read(files.find(dumps)) if dumps else []
    if earlier is not None and (answer := nccl_status.ask(job.ranks.values())) is not None:
        of_nccl = answer.still(earlier)
        told = any(isinstance(fact, (facts.CallSeen, facts.Message, facts.Waiting)) for fact in of_nccl.facts)
        found += [of_nccl] if told and not dumps else []  # dumps say more of each call
    return _with_reports(job, recording, found) if found else recording


def _recorders(ranks: Mapping[int, int]) -> list[FlightRecorder]:
    found: list[FlightRecorder] = []
    for rank, pid in ranks.items():
        try:
            process = psutil.Process(pid)
            found.append(FlightRecorder(rank, process.environ(), process.cwd(), process.create_time()))
        except (psutil.Error, OSError):  # it has just ended
            continue
    return found


def _with_reports(job: FoundJob, recording: Recording, found: Sequence[facts.Found]) -> Recording:
    """What the stacks and other reports show together."""
    told: list[facts.Fact] = [facts.WorldSize(job.size)]
    for rank, record in recording.ranks.items():
        speaker = facts.Speaker(rank, record.pid)
        if record.pid:
            told.append(facts.Identity(speaker))
        if record.stacks:
            told.append(facts.StacksSeen(speaker, record.stacks, record.process.activity == "idle"))
        if record.ending is not None:
            told.append(facts.Ended(speaker, record.ending))
    every = [facts.Found(job.target, _FORMAT, tuple(told)), *found]
    return replace(together.recording(every), sources=recording.sources, taken_ns=recording.taken_ns)
