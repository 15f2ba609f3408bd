"""Two simulated hosts under random events, and with clocks that jump and drift.

``DDPNB_SOAK_SEED`` repeats a soak, ``DDPNB_SOAK_S`` says how many seconds it takes:

    DDPNB_SOAK_S=3600 pytest -m torture tests/torture/test_hosts_soak.py -k random
"""

from __future__ import annotations

import os
import random
import sys
import time

import pytest

import ddpnb
from tests.conftest import VICTIMS
from tests.simulated_hosts import missing
from tests.torture.hosts_soak import PATIENCE_S, Soak, deadline
from tests.two_hosts import two_hosts
from tests.victims import hosts as victims

SOAK_S = float(os.environ.get("DDPNB_SOAK_S", "75"))
SEED = int(os.environ.get("DDPNB_SOAK_SEED") or random.SystemRandom().randrange(10**6))

pytestmark = [
    pytest.mark.torture,
    pytest.mark.timeout(int(SOAK_S) + 300),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
DAY_S = 86400.0


def test_random_events(tmp_path):
    print(f"DDPNB_SOAK_SEED={SEED}", flush=True)
    with (
        two_hosts(tmp_path) as hosts,
        ddpnb.launch(4, hosts=hosts.client, patience=PATIENCE_S, end_after_patience=True, quiet=True) as world,
    ):
        soak = Soak(hosts, world, SEED, tmp_path)
        end = time.monotonic() + SOAK_S
        while time.monotonic() < end:
            soak.step()
        before = {name: len(hosts.pids(name)) for name in hosts.names}
        with deadline("close"):
            world.close()
        assert all(len(hosts.pids(name)) < before[name] for name in hosts.names)


# -- clocks


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with two_hosts(tmp_path_factory.mktemp("hosts"), clocks=True) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def world(hosts):
    with ddpnb.launch(4, hosts=hosts.client, patience=PATIENCE_S, end_after_patience=True, quiet=True) as world:
        yield world


def ok(run):
    run.wait(60)
    assert run.outcome == "ok" and not run.diagnosis.findings, f"{run.diagnosis}\n{run.log(0)}"
    return run


def corrections(world):
    """How often the clock of each host was compared again because it was wrong."""
    return {host: link.clock.corrections for host, link in world._own.processes.links.items()}


def is_corrected(world, before, host):
    with deadline("the clocks are compared again", 20):
        while corrections(world)[host] == before[host]:
            time.sleep(0.05)
    time.sleep(0.5)  # until the ranks have heard of it


def last_calls(run):
    """When each rank made its last all_reduce, as recorded."""
    return [
        [call for call in run.recording.ranks[rank].calls if call.op == "all_reduce"][-1].entered_ns
        for rank in range(4)
    ]


@pytest.mark.parametrize("seconds", [40.0, -0.5, -0.05])
def test_the_monotonic_clock_of_a_host_jumps_while_ranks_run(world, hosts, seconds):
    name, before = hosts.names[1], corrections(world)
    ok(world.run(victims.sums, stream=None))
    run = world.run(victims.paced, 5, stream=None)
    time.sleep(1.5)
    hosts.clocks[name].jump(monotonic_s=seconds)
    is_corrected(world, before, name)
    assert not run.done
    ok(run)
    calls = last_calls(run)
    assert max(calls) - min(calls) < 1e9, calls  # their last call is the same one
    run = ok(world.run(victims.in_turn, 0.2, stream=None))
    assert last_calls(run) == sorted(last_calls(run)), last_calls(run)
    assert max(run.results) - min(run.results) > 3600
    assert corrections(world)[hosts.names[0]] == before[hosts.names[0]]


def test_clocks_that_drift_apart_are_corrected(world, hosts):
    name, before = hosts.names[0], corrections(world)
    run = world.run(victims.paced, 6, stream=None)
    for _ in range(50):  # ten seconds an hour
        time.sleep(0.1)
        hosts.clocks[name].jump(monotonic_s=0.0003)
    ok(run)
    is_corrected(world, before, name)
    link = world._own.processes.links[name]
    began = time.monotonic_ns()
    theirs = _clock_of(hosts, name) + link.clock.ahead_ns  # a process of the host is started for it
    assert began - 20e6 < theirs < time.monotonic_ns() + 20e6


def _clock_of(hosts, name):
    """The monotonic clock of a host, in nanoseconds."""
    show = "import time; print(time.monotonic_ns())"
    done = hosts.run(name, sys.executable, "-c", show, env=hosts.clocks[name].variables)
    return int(done.stdout)


@pytest.mark.parametrize("seconds", [DAY_S, -2 * DAY_S])
def test_the_wall_clock_of_a_host_is_set(world, hosts, seconds):
    name = hosts.names[1]
    run = world.run(victims.paced, 3, stream=None)
    time.sleep(1)
    hosts.clocks[name].jump(wall_s=seconds)
    ok(run)
    began = time.monotonic()
    run = world.run(VICTIMS / "missing.py", "early_return", stream=None)
    time.sleep(0.2)
    hosts.clocks[name].jump(wall_s=-seconds / 3)
    run.wait(60)
    assert run.outcome == "hang" and run.diagnosis.errors[0].code == "DDP301", str(run.diagnosis)
    assert run.diagnosis.errors[0].culprits == (1,) and not run.recording.edited
    assert time.monotonic() - began < 60
    assert set(world.release().left) <= {1}
    ok(world.run(victims.sums, stream=None))


@pytest.mark.parametrize("seconds", [DAY_S, -DAY_S])
def test_the_wall_clock_of_the_launcher_is_set(world, monkeypatch, seconds):
    wall, wall_ns = time.time, time.time_ns
    run = world.run(VICTIMS / "missing.py", "early_return", stream=None)
    monkeypatch.setattr(time, "time", lambda: wall() + seconds)
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + int(seconds * 1e9))
    run.wait(60)
    assert run.outcome == "hang" and run.diagnosis.errors[0].code == "DDP301", str(run.diagnosis)
    assert not run.recording.edited
    assert set(world.release().left) <= {1}
    ok(world.run(victims.sums, stream=None))
