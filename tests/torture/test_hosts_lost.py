"""What is lost for good: a host, a launcher, an agent, an engine of the user's. Nothing waits for them, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import ddpnb
from ddpnb.errors import LaunchError, UsageError, WorldError
from tests.simulated_hosts import ROOT, missing
from tests.torture.harness import read
from tests.torture.hosts_soak import PATIENCE_S, deadline
from tests.two_hosts import two_hosts
from tests.victims import hosts as victims

pytestmark = [
    pytest.mark.torture,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
ENDED_S = 30.0  # what runs on the hosts ends by itself ten seconds after the controller


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Hosts that survive the test."""
    with two_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts, own_processes(hosts)


@pytest.fixture
def shared(whole):
    hosts, own = whole
    nothing_left(hosts, own)  # of the test before
    yield hosts
    nothing_left(hosts, own)


@pytest.fixture
def hosts(tmp_path):
    """Hosts one of which dies."""
    with two_hosts(tmp_path) as hosts:
        yield hosts


def own_processes(hosts):
    """What runs on each host without ddpnb."""
    return {name: set(hosts.pids(name)) for name in hosts.names}


def nothing_left(hosts, own, *names, seconds=60.0):
    for name in names or hosts.names:
        until(f"all processes end on {name}", lambda name=name: set(hosts.pids(name)) <= own[name], seconds)


def launch(hosts, n=4, **more):
    return ddpnb.launch(
        n, hosts=more.pop("on", hosts.client), patience=PATIENCE_S, end_after_patience=True, quiet=True, **more
    )


def until(what, condition, seconds=ENDED_S):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)


def paced(world):
    """A run of many collectives, which has begun."""
    run = world.run(victims.paced, 120, stream=None)
    until(
        "the ranks call", lambda: all(one.calls and one.calls[-1].seq >= 20 for one in world.snapshot().ranks.values())
    )
    return run


def ok(run, results):
    run.wait(60)
    assert run.outcome == "ok" and run.results == results, f"{run.diagnosis}\n{run.log(0)}"


def agent_of(hosts, name):
    """The process of the agent on a host, as this machine numbers it."""
    return next(pid for pid in hosts.pids(name) if {"agent"} & {*read(pid, "cmdline")})


def folders_on(hosts, name):
    """What ddpnb has in the temporary folders of a host, but for empty ones."""
    mine = f"ddpnb-{os.geteuid()}"
    return hosts.run(name, "find", "/tmp", "/dev/shm", "-path", f"*/{mine}/*", "-not", "-type", "d").stdout.splitlines()


def readable(recording, path):
    """The recording as it is read from a file: all ranks have calls."""
    recording.save(path)
    loaded = ddpnb.load(path)
    assert all(loaded.ranks[rank].calls for rank in range(4))
    return loaded


# -- a host


@pytest.mark.parametrize("number", [1, 0])
def test_a_host_dies(hosts, tmp_path, capfd, number):
    name, left = hosts.names[number], hosts.names[1 - number]
    dead = [2, 3] if number else [0, 1]
    own = own_processes(hosts)
    with launch(hosts) as world:
        run = paced(world)
        began = time.monotonic()
        hosts.kill(name)
        with deadline("the verdict"):
            run.wait(60)
        assert run.outcome == "hang", str(run.diagnosis)
        assert [finding.code for finding in run.diagnosis.findings] == ["DDP708"], str(run.diagnosis)
        assert name in str(run.diagnosis) and time.monotonic() - began < PATIENCE_S + 20
        loaded = readable(run.recording, tmp_path / "dead.ddpnb")
        assert [one.code for one in ddpnb.diagnose(loaded).findings] == ["DDP708"]
        with deadline("release", 30):
            freed = world.release()
        assert set(dead) <= set(freed.left)  # the others may wait for these
        assert all(f"host {name} does not answer" in freed.left[rank] for rank in dead)
        for ranks in (dead, None):
            with deadline("restart", 30), pytest.raises(WorldError, match=rf"(?s){name}.*client\[\["):
                world.restart(ranks)
        with deadline("a run", 30), pytest.raises(WorldError):
            world.run(victims.sums, stream=None)
        readable(world.snapshot(), tmp_path / "later.ddpnb")
        with deadline("close", 30):
            world.close()
    assert f"host {name} does not answer" in capfd.readouterr().err
    (engine,) = hosts.ids(left)
    nothing_left(hosts, own, left)
    with deadline("a launch on all hosts", 60), pytest.raises(LaunchError, match=rf"client\[\[{engine}\]\]"):
        launch(hosts, timeout=5)
    with launch(hosts, 2, on=hosts.client[[engine]]) as world:
        ok(world.run(victims.sums, stream=None), [3.0, 3.0])


# -- a launcher

_LAUNCHER = """
import sys, time
import ipyparallel
import ddpnb
from tests.victims import hosts

world = ddpnb.launch(4, hosts=ipyparallel.Client(sys.argv[1]), quiet=True)
run = world.run(hosts.paced, 120, stream=None)
while any(not one.calls for one in world.snapshot().ranks.values()):
    time.sleep(0.1)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("cut", [False, True])
def test_a_launcher_is_killed(shared, tmp_path, cut):
    own = own_processes(shared)
    launcher = subprocess.Popen(
        [sys.executable, "-c", _LAUNCHER, shared.connection_file("client")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    try:
        with deadline("the launch", 200):
            assert launcher.stdout.readline() == "ready\n"
        assert all(len(shared.pids(name)) >= len(own[name]) + 3 for name in shared.names)
        assert all(folders_on(shared, name) for name in shared.names)
        if cut:  # the host cannot see that it has ended
            shared.cut(shared.names[1])
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
        if cut:
            nothing_left(shared, own, shared.names[0])
            assert len(shared.pids(shared.names[1])) >= len(own[shared.names[1]]) + 3
            shared.restore(shared.names[1])
    finally:
        launcher.kill()
        launcher.wait()
        launcher.stdout.close()
        shared.restore(shared.names[1])
    nothing_left(shared, own)
    assert [folders_on(shared, name) for name in shared.names] == [[], []]
    with launch(shared) as world:
        ok(world.run(victims.sums, stream=None), [10.0] * 4)


# -- an agent


@pytest.mark.parametrize("number", [1, 0])
def test_an_agent_is_killed_while_ranks_run(shared, tmp_path, number):
    name = shared.names[number]
    dead = (2, 3) if number else (0, 1)
    with launch(shared) as world:
        run = paced(world)
        os.kill(agent_of(shared, name), signal.SIGKILL)
        with deadline("the verdict"):
            run.wait(60)
        assert run.outcome == "crash", str(run.diagnosis)
        assert run.diagnosis.errors[0].code == "DDP311" and run.diagnosis.errors[0].culprits == dead, str(run.diagnosis)
        readable(run.recording, tmp_path / "agent.ddpnb")
        with deadline("restart"):
            assert world.restart().ranks == dead
        ok(world.run(victims.sums, stream=None), [10.0] * 4)
        run = world.execute("import os; print(os.environ['RANK'])", stream=None).wait(60)
        assert [run.log(rank).strip() for rank in range(4)] == list("0123")


def test_an_agent_is_killed_while_ranks_are_idle(shared):
    name, own = shared.names[1], own_processes(shared)
    with launch(shared) as world:
        ok(world.run(victims.sums, stream=None), [10.0] * 4)
        os.kill(agent_of(shared, name), signal.SIGKILL)
        nothing_left(shared, own, name)
        with deadline("a cell"), pytest.raises(WorldError, match=r"ranks 2 and 3 are dead|agent on host"):
            world.execute("1", ranks=[2, 3], stream=None)
        ok(world.run(victims.sums, stream=None), [10.0] * 4)  # with new ranks on that host
        os.kill(agent_of(shared, name), signal.SIGKILL)
        nothing_left(shared, own, name)
        with deadline("close", 30):
            world.close()
    with launch(shared) as world:
        ok(world.run(victims.sums, stream=None), [10.0] * 4)
    assert folders_on(shared, name) == []


# -- an engine of the user's


def test_the_engine_that_started_an_agent_is_killed(hosts, tmp_path):
    name = hosts.names[1]
    with launch(hosts) as world:
        run = paced(world)
        hosts.engines[name][0].kill()
        until("all on its host ends with it", lambda: not hosts.pids(name))
        with deadline("the verdict"):
            run.wait(60)
        assert [finding.code for finding in run.diagnosis.findings] == ["DDP708"], str(run.diagnosis)
        assert "engine" in str(run.diagnosis)
        readable(run.recording, tmp_path / "engine.ddpnb")
        with deadline("release", 30):
            assert {2, 3} <= set(world.release().left)
        with deadline("restart", 30), pytest.raises(WorldError, match=r"(?s)engine that you started.*client\[\["):
            world.restart([2, 3])
        with deadline("close", 30):
            world.close()
    lost = hosts.ids(name)
    hosts.start_engine(name)
    until("it registers", lambda: hosts.ids(name) != lost)
    new = [engine for engine in hosts.client.ids if engine not in lost]
    with launch(hosts, on=hosts.client[new]) as world:
        ok(world.run(victims.sums, stream=None), [10.0] * 4)


# -- an open connection


@pytest.mark.world
def test_a_client_without_encryption_is_refused(tmp_path):
    with two_hosts(tmp_path, engines=0, encrypted=False) as hosts:
        for on in (hosts.client, hosts.client.direct_view("all")):
            with deadline("the refusal", 10), pytest.raises(UsageError, match=r"(?s)encrypt.*IPP_ENABLE_CURVE=1"):
                launch(hosts, on=on)
