"""A world on two hosts: simulated ones, with a network, process IDs, files and clocks of their own."""

from __future__ import annotations

import contextlib
import os
import shlex
import time

import pytest

import ddpnb
from ddpnb.errors import WorldError
from tests.conftest import VICTIMS, marked_lines
from tests.simulated_hosts import missing
from tests.torture.harness import until
from tests.two_hosts import two_hosts
from tests.victims import hands
from tests.victims import hosts as victims

pytestmark = [
    pytest.mark.torture,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

PATIENCE_S = 3.0
OWN_S = 60.0  # for what a launcher that was killed has left
FIRST, SECOND = (0, 1), (2, 3)  # the ranks of each host


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with two_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def shared(hosts):
    with ddpnb.launch(4, hosts=hosts.client, patience=PATIENCE_S, end_after_patience=True, quiet=True) as world:
        yield world


@pytest.fixture
def world(shared):
    left = shared.release().left
    if left:
        shared.restart(left)
    return shared


def ok(run):
    run.wait(60)
    assert run.outcome == "ok", f"{run.diagnosis}\n{run.log(0)}"
    return run


def until_calls(world, seq):
    """Wait until all ranks have called this many collectives of their group."""
    until(
        "the ranks call",
        lambda: all(record.calls and record.calls[-1].seq >= seq for record in world.snapshot().ranks.values()),
    )


# -- launch and run


def test_ranks_are_placed_and_know_where_they_are(world, hosts):
    seen = ok(world.run(victims.where, stream=None)).results
    assert [name for name, _ in seen] == [hosts.names[0]] * 2 + [hosts.names[1]] * 2
    for rank, (_, variables) in enumerate(seen):
        assert variables == {
            "RANK": str(rank), "LOCAL_RANK": str(rank % 2), "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": str(rank // 2), "MASTER_ADDR": hosts.hosts[hosts.names[0]].address,
        }  # fmt: skip


def test_functions_cells_and_scripts_compute_together(world):
    assert ok(world.run(victims.sums, stream=None)).results == [10.0] * 4
    assert ok(world.run(victims.sums, stream=None)).results == [10.0] * 4  # in the same group
    cell = "import torch, torch.distributed as dist\ntotal = torch.ones(1)\ndist.all_reduce(total)\ntotal.item()"
    run = ok(world.execute(cell, stream=None))
    assert [run.log(rank).strip() for rank in range(4)] == ["4.0"] * 4
    run = ok(world.run(VICTIMS / "healthy.py", "checkpoint", stream=None))
    assert not run.diagnosis.findings, str(run.diagnosis)


def test_a_script_that_a_host_has_not_is_refused(world, tmp_path):
    script = tmp_path / "train.py"  # on the launcher alone
    script.write_text("print('here')")
    with pytest.raises(WorldError, match="train.py is not there on host"):
        world.run(script, stream=None)
    assert ok(world.run(victims.sums, stream=None)).results == [10.0] * 4


# -- hangs


@pytest.mark.parametrize(
    ("file", "case", "code", "culprit"),
    [
        ("missing.py", "early_return", "DDP301", 1),
        ("missing.py", "asynchronous", "DDP308", 3),
        ("mismatch.py", "operation", "DDP302", 2),
        ("elsewhere.py", "lock", "DDP313", 1),
        ("elsewhere.py", "stopped", "DDP314", 1),
        ("elsewhere.py", "native", "DDP314", 1),
    ],
)
def test_a_hang_is_explained_and_released(world, file, case, code, culprit):
    script = VICTIMS / file
    run = world.run(script, case, stream=None).wait(60)
    assert run.outcome == "hang", str(run.diagnosis)
    finding = run.diagnosis.errors[0]
    assert (finding.code, finding.culprits) == (code, (culprit,)), str(run.diagnosis)
    lines = {(rank, site.line) for rank, site in finding.where}
    for kind, ranks in (("culprit", finding.culprits), ("waiting", finding.waiting)):
        marked = marked_lines(script, kind, case)
        assert not marked or all(any((rank, line) in lines for line in marked) for rank in ranks), str(run.diagnosis)
    for rank in {*FIRST, *SECOND} - set(finding.culprits):
        record = run.recording.ranks[rank]  # the fence may have ended the other rank of that host
        assert record.stacks or record.ending is not None, f"no stack of rank {rank}"
    left = world.release().left
    assert set(left) <= {culprit}
    if left:
        world.restart(left)
    assert ok(world.run(victims.sums, stream=None)).results == [10.0] * 4


def test_a_script_that_only_the_hosts_have_is_shown_with_its_text(world, hosts):
    script = f"/tmp/only-{hosts.names[0]}/train.py"
    text = "import torch, torch.distributed as dist\n\ndist.init_process_group()\nif dist.get_rank() != 1:\n    dist.barrier()\n"
    for name in hosts.names:
        written = f"mkdir {os.path.dirname(script)}; printf %s {shlex.quote(text)} >{script}"
        assert hosts.run(name, "bash", "-c", written).returncode == 0
    assert not os.path.exists(script)
    with pytest.raises(WorldError, match="nowhere.py is not there on host"):
        world.run("/tmp/nowhere.py", stream=None)
    run = world.run(script, stream=None).wait(60)
    assert run.outcome == "hang" and run.diagnosis.errors[0].culprits == (1,), str(run.diagnosis)
    assert run.recording.sources[script] == text
    assert (2, 5) in {(rank, site.line) for rank, site in run.diagnosis.errors[0].where}, str(run.diagnosis)
    assert "dist.get_rank() != 1" in str(run.diagnosis)  # why rank 1 skips it, which only the text says


def test_events_of_all_hosts_are_in_order_on_one_clock(world):
    ok(world.run(victims.sums, stream=None))
    run = ok(world.run(victims.in_turn, 0.3, stream=None))
    began = []
    for rank in range(4):
        call = [call for call in run.recording.ranks[rank].calls if call.op == "all_reduce"][-1]
        began.append(call.entered_ns)
    assert began == sorted(began), began  # though the monotonic clocks are days apart
    assert max(run.results) - min(run.results) > 3600
    assert began[-1] - began[0] < 60e9


# -- processes


def test_a_killed_rank_is_named_and_replaced_on_its_host(world, hosts):
    run = world.run(VICTIMS / "training.py", "killed", stream=None).wait(60)
    assert run.outcome == "crash" and run.diagnosis.errors[0].code == "DDP311", str(run.diagnosis)
    assert run.diagnosis.errors[0].culprits == (1,) and "SIGKILL" in str(run.diagnosis)
    before = world.pids()
    world.release()
    world.restart(1)
    assert [rank for rank in range(4) if world.pids()[rank] != before[rank]] == [1]
    seen = ok(world.run(victims.where, stream=None)).results
    assert [name for name, _ in seen] == [hosts.names[0]] * 2 + [hosts.names[1]] * 2


def test_a_rank_of_the_second_host_is_killed_from_outside(world, hosts):
    run = world.run(victims.paced, 60, stream=None)
    until_calls(world, 20)
    pid = world.pids()[3]
    assert hosts.run(hosts.names[1], "kill", "-KILL", pid).returncode == 0
    run.wait(60)
    assert run.outcome == "crash" and run.diagnosis.errors[0].culprits == (3,), str(run.diagnosis)
    world.release()
    world.restart(3)
    assert ok(world.run(victims.sums, stream=None)).results == [10.0] * 4


# -- control


def test_holds_and_steps_over_hosts(world):
    holding = world.hold("all_reduce", seq=5)
    run = world.run(hands.steps, 12, stream=None)
    assert holding.wait(60).held == (0, 1, 2, 3)
    assert world.evaluate("step").values_by_rank == dict.fromkeys(range(4), 4)
    assert world.diff().differing["mine"] == {0: "4", 1: "4", 2: "5", 3: "4"}
    time.sleep(world.patience + 0.5)  # longer than a rank may stand anywhere else
    assert run.outcome == "running" and not run.diagnosis.errors, str(run.diagnosis)
    assert {rank.call.seq for rank in world.step(2).ranks} == {7}
    alone = world.step(ranks=0)
    assert alone[0].state == "waiting" and alone.held == (1, 2, 3)
    assert {rank.call.seq for rank in world.step(ranks=[1, 2, 3]).ranks} == {8}
    world.resume()
    assert ok(run).results[2] == [2, 12]


# -- links that are cut


@contextlib.contextmanager
def cut(hosts, name):
    hosts.cut(name)
    try:
        yield
    finally:
        hosts.restore(name)


def test_a_cut_link_is_a_finding_and_the_world_goes_on_when_it_is_restored(world, hosts):
    ok(world.run(victims.sums, stream=None))
    run = world.run(victims.paced, 60, stream=None)
    until_calls(world, 20)
    name = hosts.names[1]
    with cut(hosts, name):
        run.wait(60)
        assert run.done, "an endless wait"
        assert [finding.code for finding in run.diagnosis.findings] == ["DDP708"], str(run.diagnosis)
        assert name in str(run.diagnosis) and "ranks 2 and 3" in str(run.diagnosis)
        assert not run.diagnosis.findings[0].culprits and set(run.diagnosis.findings[0].waiting) <= set(FIRST)
        with pytest.raises(WorldError, match=name):
            world.evaluate("count", ranks=[2])
        status = world.status()
        assert not any(status[rank].state in ("dead", "unresponsive") for rank in range(4)), str(status)
    until("the host is heard again", lambda: not world.release().left)
    assert ok(world.run(victims.sums, stream=None)).results == [10.0] * 4


def test_a_short_cut_is_no_finding(world, hosts):
    ok(world.run(victims.sums, stream=None))
    run = world.run(victims.paced, 6, stream=None)
    until_calls(world, 20)
    with cut(hosts, hosts.names[1]):
        time.sleep(2)
    ok(run)
    assert not run.diagnosis.findings, str(run.diagnosis)
    assert len(set(run.results)) == 1
