"""Processes that are started before the launcher has imported what it needs to follow them: nothing of them is left behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import ddpnb
import ddpnb.world.world
from ddpnb.errors import LaunchError
from ddpnb.ranks import interpreter
from ddpnb.ranks.engines.cluster import EngineCluster
from tests.conftest import alive

pytestmark = pytest.mark.world

WITHIN_S = 240.0
ORDER = """
import sys, ddpnb
from ddpnb.ranks import interpreter
loaded, start = [], interpreter.start

def noted(*args, **more):
    loaded.append(sorted({"ipyparallel", "IPython", "ddpnb.world.world"} & sys.modules.keys()))
    return start(*args, **more)

interpreter.start = noted
with ddpnb.launch(2, backend="gloo", quiet=True) as world:
    print(loaded[:2], world.execute("1 + 1", stream=None).wait(60).outcome, "numpy" in sys.modules)
"""


@pytest.fixture
def begun(monkeypatch):
    """The processes that are started early; none is left at the end, nor a thread."""
    processes, start, threads = [], interpreter.start, set(threading.enumerate())

    def noted(*args, **more):
        processes.append(start(*args, **more))
        return processes[-1]

    monkeypatch.setattr(interpreter, "start", noted)
    yield processes
    end = time.monotonic() + WITHIN_S
    while (left := [one.pid for one in processes if alive(one.pid)]) or not set(threading.enumerate()) <= threads:
        if time.monotonic() > end:
            break
        time.sleep(0.02)
    assert not left and set(threading.enumerate()) <= threads


def launch(**more):
    return ddpnb.launch(2, backend="gloo", quiet=True, **more)


@pytest.mark.full
def test_ranks_are_started_first_and_numpy_is_not_needed():
    """Before anything else is imported; the controller follows."""
    done = subprocess.run([sys.executable, "-c", ORDER], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.strip() == "[[], []] ok False", done.stderr


@pytest.mark.parametrize("fork", [False, pytest.param(True, marks=pytest.mark.full)])
def test_what_cannot_be_imported_leaves_nothing_behind(place, begun, monkeypatch, fork):
    monkeypatch.setitem(sys.modules, "ddpnb.world.world", None)
    with pytest.raises(ImportError, match="ddpnb.world.world"):
        launch(fork=fork)
    assert os.listdir(place) == []


@pytest.mark.parametrize("fork", [pytest.param(False, marks=pytest.mark.full), True])
def test_an_interrupt_meanwhile_comes_when_the_world_can_be_closed(place, begun, monkeypatch, fork):
    made = []

    def interrupted(*args, **more):
        os.kill(os.getpid(), signal.SIGINT)
        made.append(world(*args, **more))
        return made[0]

    world = ddpnb.world.world.World
    monkeypatch.setattr(ddpnb.world.world, "World", interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch(fork=fork)
    assert made[0].closed and os.listdir(place) == []
    assert [one.returncode for one in begun] == [-signal.SIGKILL] * (1 if fork else 2)


def test_the_system_refuses_the_second_one(place, begun, monkeypatch):
    start = interpreter.start

    def refused(*args, **more):
        if begun:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return start(*args, **more)

    monkeypatch.setattr(interpreter, "start", refused)
    with pytest.raises(LaunchError, match="Resource temporarily unavailable(.|\n)*ulimit -u"):
        launch()
    assert len(begun) == 1 and os.listdir(place) == []


def test_a_rank_that_dies_meanwhile_is_reported_with_its_log(place, begun, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif os.environ.get('RANK') == '1':\n    sys.exit('no room in this rank')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep if "PYTHONPATH" in os.environ else None)
    with pytest.raises(LaunchError, match=r"engine of rank 1 exited with status 1(.|\n)*no room in this rank"):
        launch()


def test_a_thread_that_is_ended_at_once_has_ended_what_it_was_to_start(begun, tmp_path):
    """``close`` follows ``begin`` in the order of the thread, however soon it comes."""
    for _ in range(10):
        one = EngineCluster(str(tmp_path))
        one.begin({0: {"RANK": "0"}})
        one.close()
        assert one.closed


@pytest.mark.full
def test_a_restarted_rank_has_a_process_of_its_own(begun):
    with launch() as world:
        first = world.pids()
        assert sorted(first) == sorted(one.pid for one in begun[:2])  # the controller is the third
        world.restart(1)
        assert world.pids()[0] == first[0] and world.pids()[1] not in first
        assert world.execute("1 + 1", stream=None).wait(60).outcome == "ok"
