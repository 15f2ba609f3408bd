"""The controller dies or is stopped, or a copy of the launcher ends: nothing of that is said of the ranks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time

import pytest

import ddpnb
from ddpnb.errors import DdpnbError
from tests.conftest import alive
from tests.victims import hands

pytestmark = pytest.mark.world


@pytest.fixture
def own(monkeypatch, tmp_path, forks):
    """A world of its own, whose controller may be killed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # logs that are kept stay in the test's own folder
    with ddpnb.launch(2, patience=1.5, quiet=True, fork=forks) as world:
        yield world


def controller(world):
    return world._ranks.processes._cluster.controller.pid


def kill(world):
    os.killpg(controller(world), signal.SIGKILL)


def stop(world):
    os.kill(controller(world), signal.SIGSTOP)


def go_on(world):
    os.kill(controller(world), signal.SIGCONT)


def bounded(call, seconds=20.0):
    """What the call raises; it must not take long to say so."""
    began = time.monotonic()
    with pytest.raises(DdpnbError) as caught:
        call()
    assert time.monotonic() - began < seconds
    return str(caught.value)


@pytest.mark.full
@pytest.mark.parametrize(
    "moment", ["releasing", *(pytest.param(one, marks=pytest.mark.full) for one in ("held", "training", "restarting"))]
)
def test_the_controller_dies(own, moment, monkeypatch):
    holding = own.hold("all_reduce", seq=3) if moment == "held" else None
    run = own.run(hands.paced, 10_000, stream=None)
    if holding is not None:
        assert holding.wait(60).held == (0, 1)
    else:
        time.sleep(1)
    pids = own.pids()
    if moment == "releasing":
        stop(own)
        while own._ranks.processes.connection != "stopped":
            time.sleep(0.01)
        threading.Timer(0.1, kill, [own]).start()
        assert "controller" in bounded(own.release)
    elif moment == "restarting":
        engines = own._ranks.processes
        waits = engines._wait_for

        def waits_in_vain(*given):
            kill(own)
            waits(*given)

        monkeypatch.setattr(engines, "_wait_for", waits_in_vain)
        assert "controller" in bounded(lambda: own.restart(1))
    else:
        threading.Timer(0.3, kill, [own]).start()
    if moment != "restarting":  # there the run was settled before
        said = bounded(run.wait)
        assert "the controller of this world has died" in said and "rank" not in said.split("its ranks cannot")[0]
        assert (run.outcome, run.recording, run.exit_status) == ("unknown", None, 1)
        folder = said.split("output of the ranks is in ")[1].rstrip(".\n")
    for call in (own.release, own.snapshot, own.status, own.compare, own.restart, own.rebuild):
        assert "the controller of this world has died" in bounded(call)
    own.close()
    assert not any(map(alive, pids))
    if moment != "restarting":
        assert sorted(os.listdir(folder)) == ["rank0.log", "rank1.log"]  # what the message names is still there


@pytest.mark.full
def test_the_controller_is_stopped(own):
    """A run goes on without it; while ranks stand still nothing is concluded, and it can go on."""
    run = own.run(hands.paced, 10_000, stream=None)
    time.sleep(0.5)
    stop(own)
    time.sleep(0.2)
    for call in (own.release, own.snapshot, own.compare, lambda: own.restart(0)):
        said = bounded(call)
        assert "is stopped" in said and f"kill -CONT {controller(own)}" in said
    assert not run.wait(3 * own.patience).done
    go_on(own)
    freed = own.release()
    assert freed.ranks == (0, 1), freed

    holding = own.hold("all_reduce", seq=3)
    run = own.run(hands.steps, 10, stream=None)
    assert holding.wait(60).held == (0, 1)
    stop(own)
    assert "is stopped" in bounded(run.wait)
    assert run.recording is None
    go_on(own)
    assert own.release().ranks == (0, 1)
    assert own.run(hands.steps, 3, stream=None).wait(60).outcome == "ok"


def test_a_forked_child_leaves_the_world_of_its_parent_alone(world):
    """It ends as any process does: at its exit handlers, and out of the ``with`` of the world."""
    run = world.run(hands.paced, 10_000, stream=None)
    world._ranks.lock.acquire()  # as another thread might hold it at the fork
    child = os.fork()
    if child == 0:
        status = 1
        try:
            calls = (
                world.snapshot,
                world.release,
                world.restart,
                world.rebuild,
                run.wait,
                lambda: world.run(hands.steps, 1),
            )
            said = [bounded(call, 5.0) for call in calls]
            world.close()
            world.__exit__(None, None, None)
            world._ranks.processes.stop()
            ddpnb.world.world._close_all()
            status = 0 if all("forked child" in one for one in said) else 2
        finally:
            sys.stdout.flush()
            os._exit(status)
    world._ranks.lock.release()
    deadline = time.monotonic() + 240
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    assert ended == (child, 0)
    process = multiprocessing.get_context("fork").Process(target=sys.exit)
    process.start()
    process.join(30)
    assert process.exitcode == 0
    assert world.snapshot().world_size == 4 and not run.done
    assert world.release().ranks == (0, 1, 2, 3)
