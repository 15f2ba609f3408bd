"""A command of the user's: whether it may start ranks on other hosts, and its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time

import psutil
import pytest

from ddpnb.ranks import descendants
from ddpnb.ranks.jobs.command import Command, may_leave_host
from ddpnb.ranks.jobs.injection import injected
from tests.conftest import alive


@pytest.mark.parametrize(
    ("command", "environment", "leaves"),
    [
        (["srun", "-N2", "python", "train.py"], {}, True),
        (["/usr/bin/mpiexec", "-n", "4", "python", "train.py"], {}, True),
        (["sh", "-c", "cd x && srun python train.py"], {}, True),
        (["bash", "job.sh"], {"SLURM_JOB_NUM_NODES": "2"}, True),
        (["bash", "job.sh"], {"SLURM_JOB_NUM_NODES": "1"}, False),
        (["torchrun", "--nproc-per-node", "4", "train.py"], {}, False),
        (["python", "srun_train.py"], {}, False),
        (["env", "A=1", "srun", "python", "train.py"], {}, True),
        (["python3.13", "-m", "train", "--model", "flux"], {}, False),
        (["./train.py", "--strategy", "deepspeed"], {}, False),
        (["deepspeed", "train.py"], {}, True),
    ],
)
def test_which_commands_may_start_ranks_on_other_hosts(command, environment, leaves):
    assert may_leave_host(command, environment) == leaves


@pytest.mark.parametrize(
    "script",
    [
        "env -i setsid sleep 600 & echo ready; wait",
        "trap '' TERM; setsid sleep 600 & echo ready; while :; do sleep 0.1; done",
        "(trap '' TERM; sleep 600) & echo ready; wait",
    ],
    ids=["another environment", "ignores SIGTERM", "outlives it"],
)
def test_nothing_of_a_command_is_left_when_it_is_ended(tmp_path, monkeypatch, script):
    monkeypatch.setattr("ddpnb.ranks.jobs.command._TERM_S", 1.0)
    environment = injected(os.environ, str(tmp_path), "raise")
    command = Command(["sh", "-c", script], str(tmp_path), environment, subprocess.PIPE)
    with command.output as output:
        assert output.readline() == b"ready\n"
        deadline = time.monotonic() + 240
        while (pid := sleeper_of(command)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        command.end()
    assert not alive(pid) and command.status is not None


def sleeper_of(command):
    for process in descendants.family([command.pid]):
        with contextlib.suppress(psutil.Error):
            if process.cmdline() == ["sleep", "600"]:
                return process.pid
    return None


def test_a_folder_that_the_program_has_removed(tmp_path):
    folder = tmp_path / "job"
    (folder / "1-0").mkdir(parents=True)
    command = Command(["sleep", "60"], str(folder), dict(os.environ), None)
    try:
        assert command.starts() == [str(folder / "1-0")]
        shutil.rmtree(folder)
        assert command.starts() == [] and command.unrecorded() == []
    finally:
        command.end(at_once=True)
