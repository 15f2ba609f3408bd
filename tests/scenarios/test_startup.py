"""Start-up in steps, on real ranks: who waits for whom, and what fails can be made again."""

from __future__ import annotations

import os
import signal
import time

import pytest

from ddpnb.errors import UsageError, WorldError
from ddpnb.recording.startup import STEPS

pytestmark = pytest.mark.world


def test_rank_by_rank(world):
    startup = world.init()
    assert startup.state.stopped_at == "environment"
    startup.step().step()
    startup.step(ranks=0)
    assert startup.sentences()[0] == "waits in the store for 3 of 4 ranks: 1, 2 and 3"
    assert world.status()[0].state == "starting" and "waits in the store" in str(world.status())
    startup.step(ranks=[1])
    assert startup.sentences()[0] == "waits in the store for 2 of 4 ranks: 2 and 3"
    with pytest.raises(WorldError, match="waits in the store"):
        startup.step(ranks=0)
    with pytest.raises(WorldError, match="still in start-up"):
        world.run(print)
    startup.step()
    assert startup.state.stopped_at == "process group" and not startup.busy()
    startup.step(ranks=[0, 1, 2])
    assert startup.sentences()[2] == "waits in process group for 1 of 4 ranks: 3"
    startup.run()
    assert startup.done and [startup.state.at(rank, STEPS[-1]).state for rank in range(4)] == ["done"] * 4
    assert startup.facts("first all-reduce")[3]["sum"] == 10.0
    assert startup.facts("device")[1]["device"] == "cpu" and startup.facts("environment")[2]["RANK"] == "2"
    assert (
        len({facts["parameters"] for facts in startup.facts("optimizer step").values()}) == 1
    )  # the replicas are alike
    assert "✓" in str(startup) and "all steps are done" in str(startup)
    with pytest.raises(UsageError, match="unknown step 'stores'"):
        startup.facts("stores")
    with pytest.raises(UsageError, match="no rank 4"):
        startup.step(ranks=4)


@pytest.mark.parametrize(
    ("fault", "given", "step", "words"),
    [
        ("missing variable", {"name": "WORLD_SIZE"}, "environment", "the environment has no WORLD_SIZE"),
        *(
            pytest.param("variable", {"name": "RANK", "value": value}, "environment", words, marks=pytest.mark.full)
            for value, words in (
                ("one", "RANK='one' is not a number"),
                ("9", "RANK=9 is out of range for WORLD_SIZE=4"),
            )
        ),
    ],
)
def test_a_step_that_fails_is_made_again_when_its_cause_is_repaired(world, fault, given, step, words):
    pids = world.pids()
    world.inject(fault, ranks=2, **given)
    startup = world.init().run()
    assert startup.state.at(2, step).state == "failed" and words in startup.state.at(2, step).error
    assert startup.state.at(1, step).state == "done" and words in str(startup)
    world.heal()
    assert startup.run().done and world.pids() == pids


def test_another_port_repaired_while_the_others_wait(world):
    world.inject("wrong port", ranks=2)
    startup = world.init().run("device")
    startup.step(timeout=1.5)
    deadline = time.monotonic() + 240
    while startup.busy() != [0, 2] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert startup.busy() == [0, 2] and "rank 2 is at 127.0.0.1" in startup.sentences()[0]
    assert any(note.startswith("the ranks differ in address") for note in startup.notes())
    assert not world.release().left
    assert "Released" in startup.state.at(2, "store").error
    world.heal()
    assert startup.run("first barrier").state.stopped_at == "first all-reduce", str(startup)


def test_a_start_up_that_is_released(world):
    startup = world.init().run("store")
    startup.step(ranks=[0, 1])
    assert startup.busy() == [0, 1]
    assert world.release().ranks == (0, 1)
    assert startup.state.at(0, "process group").state == "failed"
    assert world.rebuild().state.stopped_at == "first all-reduce"


@pytest.mark.full
def test_a_rank_that_is_replaced_gets_the_group(world):
    world.rebuild()
    before = world.pids()
    world.restart(2)
    after = world.pids()
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, True, False, True]
    run = world.execute(
        "import torch, torch.distributed as d\nx = torch.ones(1); d.all_reduce(x); x.item()", stream=None
    )
    assert run.wait(30).outcome == "ok" and run.log(2).strip() == "4.0"


def test_a_rank_that_is_replaced_while_the_others_wait_joins_them(world):
    startup = world.init().run("device")
    startup.step(ranks=[0, 1, 3])
    assert startup.busy() == [0]  # it holds the store, and waits for rank 2
    world.restart(2)
    assert startup.sentences()[2] == "ready for environment" and startup.busy() == [0]
    startup.step(ranks=2).step(ranks=2).step(ranks=2)
    assert startup.run("first all-reduce").facts("first all-reduce")[2]["sum"] == 10.0, str(startup)


@pytest.mark.full
def test_a_rank_that_is_stopped_in_a_step_is_said_to_be_and_replaced(world):
    startup = world.init().run("device")
    before = world.pids()
    os.kill(before[2], signal.SIGSTOP)
    startup.step(timeout=60)  # it does not wait for one that cannot come
    assert startup.sentences()[2] == "is stopped (SIGSTOP)" and 0 in startup.busy()
    with pytest.raises(WorldError, match=r"rank 2 is stopped(.|\n)*world.restart\(2\)"):
        startup.step(ranks=2)
    world.restart()
    assert [a == b for a, b in zip(before, world.pids(), strict=True)] == [True, True, False, True]
    startup.step(ranks=2).step(ranks=2).step(ranks=2)
    assert startup.run("first barrier").state.stopped_at == "first all-reduce", str(startup)


@pytest.mark.full
def test_a_rank_that_is_stopped_in_a_rebuild_is_named_with_what_helps(world):
    world.inject("freeze", ranks=2, op="barrier")
    with pytest.raises(WorldError, match=r"rank 2: is stopped(.|\n)*world.restart\(2\), then world.rebuild\(\)"):
        world.rebuild()
    world.restart(2)
    assert world.rebuild().state.stopped_at == "first all-reduce"
