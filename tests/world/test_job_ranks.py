"""The ranks of a job that was started elsewhere: here one that has ended. A real process, without torch."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from ddpnb.errors import WorldError
from ddpnb.ranks.jobs.found_job import FoundJob
from ddpnb.recording import protocol
from ddpnb.world.job import Job


@pytest.fixture
def job(tmp_path):
    process = subprocess.Popen(["sleep", "60"])
    who = {
        "pid": process.pid, "started": protocol.started(process.pid), "host": protocol.host(), "place": protocol.place(),
        "start": "", "clock": [0, 0], "rank": 0, "size": 1, "local_size": 1, "device": "cpu", "address": "",
        "directory": "/", "command": ["sleep"],
    }  # fmt: skip
    (tmp_path / "rank0.json").write_text(json.dumps(who))
    with Job(FoundJob(os.fspath(tmp_path), {0: process.pid}, 1), 10.0) as job:
        process.kill()
        process.wait()
        yield job


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
