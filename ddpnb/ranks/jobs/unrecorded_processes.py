"""Ranks in which no recorder runs: their stacks are read from outside, and nothing else is known of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

from ddpnb.errors import WorldError
from ddpnb.ranks.jobs.found_job import FoundJob
from ddpnb.ranks.jobs.job_processes import UNRECORDED, Identity, JobProcesses
from ddpnb.ranks.py_spy import TIMEOUT_S, check_py_spy, described_stacks
from ddpnb.recorder.stacks.kernel_waits import system_call, words
from ddpnb.recording import protocol
from ddpnb.recording.verbs import A, Looked, Request, Snapshot

_NO_FOLDER = "/proc/ddpnb"  # the ranks have none, and nobody can make this one
_AT_ONCE = 8  # processes that are read at the same time
_AGAIN_S, _AGAIN_AT_MOST_S = 1.0, 5.0  # between two reads of a stack
_SHARE = 10  # reads take no more than one part in so many of the time: the ranks may need every core


class UnrecordedProcesses(JobProcesses):
    """The ranks of a job that was started without ``ddpnb run``.

    Args:
        job: as it was found.

    Raises:
        WorldError: py-spy is missing, or the kernel does not let it read these processes.
    """

    recorded = False

    def __init__(self, job: FoundJob) -> None:
        check_py_spy(job.ranks[min(job.ranks)])
        super().__init__(_NO_FOLDER, UNRECORDED)
        self._job = job
        self._reading = threading.Lock()
        self._answers: dict[int, tuple[float, Looked]] = {}  # when it was read, and what
        self._pause = _AGAIN_S
        for rank, pid in job.ranks.items():
            self._known[rank] = Identity(
                rank, pid, job.size, protocol.started(pid), directory=job.directory, command=job.command
            )
            self._exits.watch(pid)
        self._known |= {rank: Identity(rank, 0, job.size) for rank in job.ended}

    def ask_each(self, requests: Mapping[int, Request[A]], timeout: float) -> dict[int, A]:  # noqa: ARG002
        """The answer to a request for stacks; it may be some seconds old, so that reading does not slow the ranks.

        Raises:
            WorldError: any other request.
        """
        if any(not isinstance(request, Snapshot) for request in requests.values()):
            raise not_recorded(self._job)
        # It takes TIMEOUT_S at most, whatever ``timeout`` is: a busy host is slow to start py-spy.
        with self._reading:
            began = time.monotonic()
            due = [
                rank
                for rank in requests
                if self.alive(rank) and began - self._answers.get(rank, (-self._pause, Looked()))[0] >= self._pause
            ]
            if due:
                with ThreadPoolExecutor(min(_AT_ONCE, len(due)), "ddpnb py-spy") as pool:
                    read = list(pool.map(self._read, due))
                # As old as it can be: a rank has not run between its first look and the begin of its last.
                self._answers |= {rank: (began, answer) for rank, answer in zip(due, read, strict=True)}
                self._pause = min(_AGAIN_AT_MOST_S, max(_AGAIN_S, _SHARE * (time.monotonic() - began)))
            now = time.monotonic()
            found = {rank: self._answers[rank] for rank in requests if rank in self._answers}
            return {rank: cast("A", replace(told, age_s=now - read_at)) for rank, (read_at, told) in found.items()}

    def _read(self, rank: int) -> Looked:
        pid = self.pid(rank)
        switches = _switches(pid)  # first: if it runs while its stack is read, the next look sees that
        waits_on = words(*system_call(pid), str(pid))
        stacks = described_stacks(pid, TIMEOUT_S)
        return Looked(stacks=stacks, switches=switches, waits_on=waits_on)


def _switches(pid: int) -> int:
    """How often the main thread was taken from a core or gave it up: it has not run if this stays the same.

    A number that never comes again where the system does not tell: then no rank is known to make no progress.
    """
    found = 0
    try:
        with open(f"/proc/{pid}/task/{pid}/status") as file:
            for line in file:
                if "ctxt_switches:" in line:
                    found += int(line.rpartition(":")[2])
    except (OSError, ValueError):
        found = 0
    return found or time.monotonic_ns()


def not_recorded(job: FoundJob) -> WorldError:
    """What is not possible with a job that was started without ``ddpnb run``."""
    return WorldError(
        "this job was started without ddpnb: no recorder runs in its ranks, so that their stacks and variables can be "
        "read, and nothing else is possible.",
        f"To hold, step, compare or release ranks, start it with the prefix: {job.prefixed}",
    )
