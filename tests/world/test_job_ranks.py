"""The ranks of a job that was started elsewhere: of one that has ended or is starting. A real process, without torch."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from ddpnb.errors import LaunchError, WorldError
from ddpnb.ranks.jobs.found_job import FoundJob
from ddpnb.recording import protocol
from ddpnb.world.job import Job


@pytest.fixture
def process():
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def first_of(size, folder, process):
    """A job of so many ranks of which the first is this process; the others have not joined."""
    who = {
        "pid": process.pid, "started": protocol.started(process.pid), "host": protocol.host(), "place": protocol.place(),
        "start": "", "clock": [0, 0], "rank": 0, "size": size, "local_size": 1, "device": "cpu", "address": "",
        "directory": "/", "command": ["sleep"],
    }  # fmt: skip
    (folder / "rank0.json").write_text(json.dumps(who))
    return Job(FoundJob(os.fspath(folder), {0: process.pid}, size), 10.0)


@pytest.fixture
def job(tmp_path, process):
    with first_of(1, tmp_path, process) as job:
        process.kill()
        process.wait()
        yield job


@pytest.mark.parametrize("ranks", [None, 1, [0, 1]])
def test_a_rank_that_has_not_joined_is_not_called_dead_nor_left_out_of_a_hold(tmp_path, process, ranks):
    with first_of(2, tmp_path, process) as job, pytest.raises(WorldError, match="^rank 1 has not joined yet"):
        job.hold(ranks=ranks)


@pytest.mark.parametrize(
    "what",
    [
        lambda job: job.hold(),
        lambda job: job.hold(ranks=0),
        lambda job: job.step(),
        lambda job: job.resume(),
        lambda job: job.evaluate("1"),
    ],
    ids=["hold", "hold one", "step", "resume", "evaluate"],
)
def test_what_is_asked_of_a_job_that_has_ended(job, what):
    with pytest.raises(WorldError, match="this job has ended: no rank is left") as failed:
        what(job)
    assert "job.diagnosis" in failed.value.hint


def test_what_the_end_of_a_world_interrupts_names_it_and_nothing_that_follows_from_it(tmp_path, process):
    def restarted(job):
        with job._ranks.opened():
            job.close()
            raise LaunchError("the engine of rank 0 was killed by SIGKILL before it was ready.", "")

    with first_of(1, tmp_path, process) as job, pytest.raises(WorldError, match="closed"):
        restarted(job)
