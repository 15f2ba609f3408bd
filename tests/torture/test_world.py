"""Signals to the processes of a world that lives on: the next run in it works, or it says why it cannot."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time

import psutil
import pytest

from ddpnb.errors import DdpnbError
from tests.conftest import alive
from tests.torture.harness import MARK, read, until
from tests.torture.test_signals import FATAL, STOPPED, send
from tests.torture.worlds import Pair, fresh, recover, train

pytestmark = [pytest.mark.torture, pytest.mark.timeout(300)]


def hang():
    """Both ranks wait for a message that the other never sends."""
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo")
    dist.recv(torch.ones(4), src=1 - dist.get_rank())


def controller_of(world):
    """The process of its controller."""
    children = psutil.Process().children()
    assert world.pids()
    return next(one.pid for one in children if "controller" in read(one.pid, "cmdline") and read_mark(one.pid))


def read_mark(pid):
    return f"{MARK}={os.environ.get(MARK)}" in read(pid, "environ")


@pytest.fixture(scope="module")
def pairs():
    shared = Pair()
    yield shared
    shared.close()


def begin(world, moment):
    """Bring a world to this moment; its run, if it has one."""
    if moment == "idle":
        return None
    if moment == "hang":
        run = world.run(hang, stream=None).wait(60)
        assert run.outcome == "hang"
        return run
    hold = world.hold("all_reduce") if moment == "hold" else None
    run = world.run(train, 10_000, stream=None)
    if hold is not None:
        until("both ranks are held", lambda: str(hold.wait(1)).count("held") >= 2)
    else:
        until("the ranks train", lambda: run._monitor.observer.statuses()[1].calls > 3)
    return run


@pytest.mark.parametrize("name", [*FATAL, STOPPED])
@pytest.mark.parametrize("moment", ["idle", "running", "hang", "hold"])
def test_a_rank_of_a_world(pairs, moment, name):
    with pairs.lend() as world:
        run, pid = begin(world, moment), world.pids()[1]
        send(pid, name)
        if name not in (STOPPED, "INT"):
            until("the rank dies", lambda: not alive(pid))
            time.sleep(1)  # so that the launcher has been notified, idle or not
        if moment == "running" and name not in (STOPPED, "INT"):
            run.wait(60)
            first = run.diagnosis.findings[0]
            assert (run.outcome, first.code, first.culprits) == ("crash", "DDP311", (1,)), str(run.diagnosis)


@pytest.mark.parametrize("action", ["release", "restart", "close"])
@pytest.mark.parametrize("name", ["KILL", "STOP"])
def test_a_rank_while_something_is_done_to_the_world(action, name):
    with fresh() as world:
        begin(world, "hang")
        pid = world.pids()[1]
        sender = threading.Timer(0.02, send_once, (pid, name))
        sender.start()
        began = time.monotonic()
        with contextlib.suppress(DdpnbError):
            getattr(world, action)()
        sender.join()
        assert time.monotonic() - began < 60
        if action != "close":
            recover(world)


def send_once(pid, name):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, getattr(signal, f"SIG{name}"))


def refusal(world):
    """Why there can be no other run; empty if there was one."""
    try:
        world.run(train, 5, stream=None).wait(60)
    except DdpnbError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("moment", ["idle", "running", "hang", "hold"])
def test_the_controller_of_a_world(moment):
    with fresh() as world:
        run = begin(world, moment)
        os.kill(controller_of(world), signal.SIGKILL)
        began = time.monotonic()
        if run is not None and moment != "hang":
            with pytest.raises(DdpnbError, match=r"controller.*died"):
                run.wait(60)
        until("the world says so", lambda: re.search("controller.*died", refusal(world)))  # it takes a moment
        with contextlib.suppress(DdpnbError):
            world.release()
        assert time.monotonic() - began < 60


def test_released_and_run_again_twenty_times(pairs):
    with pairs.lend() as world:
        for _ in range(20):
            begin(world, "hang")
            assert not world.release().left
            world.rebuild()
            assert sorted(world.run(train, 3, stream=None).wait(60).results) == [0, 1]


def test_restarted_five_times(pairs):
    with pairs.lend() as world:
        for _ in range(5):
            world.restart([0, 1])
            assert sorted(world.run(train, 3, stream=None).wait(60).results) == [0, 1]
