"""Ranks in processes of their own: none is left when they are stopped, also while they start."""

from __future__ import annotations

import subprocess
import threading

import pytest

from ddpnb.errors import LaunchError
from ddpnb.ranks import interpreter
from ddpnb.ranks.jobs import spawned
from ddpnb.ranks.jobs.spawned import Program, SpawnedProcesses
from tests.conftest import alive


@pytest.fixture
def processes(tmp_path):
    (tmp_path / "train.py").write_text("import time\ntime.sleep(600)\n")
    program, logs = Program("train.py"), {rank: str(tmp_path / f"rank{rank}.log") for rank in range(2)}
    made = SpawnedProcesses(str(tmp_path), program, logs, str(tmp_path))
    yield made
    made.stop()


@pytest.mark.parametrize("late", ["before", "after"])
def test_a_rank_that_is_started_late_is_ended(processes, monkeypatch, late):
    """The system is slow to start it, and nobody waits for it any more."""
    start, started, stopping = subprocess.Popen, [], threading.Event()

    def slow(*args, **options):
        if late == "before":
            stopping.wait(60)
        started.append(start(*args, **options))
        stopping.wait(60)
        return started[-1]

    monkeypatch.setattr(interpreter.subprocess, "Popen", slow)
    submit = processes._starter.submit

    def noted(work, *args):
        if processes._ended:
            stopping.set()
        return submit(work, *args)

    monkeypatch.setattr(processes._starter, "submit", noted)
    with pytest.raises(LaunchError):
        processes.start({rank: {"RANK": str(rank)} for rank in range(2)}, timeout=0.2)
    (process,) = started
    assert not alive(process.pid) and process.returncode == -9


def test_a_rank_that_starts_after_all_have_been_stopped_is_ended(processes, monkeypatch):
    monkeypatch.setattr(spawned.descendants, "END_S", 0.2)
    start, started, stopped = subprocess.Popen, [], threading.Event()

    def slow(*args, **options):
        stopped.wait(60)
        started.append(start(*args, **options))
        return started[-1]

    monkeypatch.setattr(interpreter.subprocess, "Popen", slow)
    with pytest.raises(LaunchError):
        processes.start({0: {"RANK": "0"}}, timeout=0.2)
    assert not started
    stopped.set()
    processes._starter._thread.join(60)
    (process,) = started
    assert not alive(process.pid)


def test_all_are_ended_and_waited_for(processes):
    processes.start({rank: {"RANK": str(rank)} for rank in range(2)})
    pids = [processes.pid(rank) for rank in range(2)]
    assert all(map(alive, pids))
    processes.stop()
    assert not any(map(alive, pids))
    assert [processes.exit_status(rank) for rank in range(2)] == [-9, -9]
