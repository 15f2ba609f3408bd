"""Who waits for whom while ranks start up one by one."""

from __future__ import annotations

import pytest

from ddpnb.recording.startup import STEPS, StartupState, StepState
from ddpnb.render.views import startup_waits

ADDRESS = {"address": "127.0.0.1:29500"}


def state(*ranks, dead=(), addresses=()):
    """For each rank the step it is in (others before it are done), ``+`` behind it when that is done, ``!`` when it failed."""
    made = {}
    for rank, told in enumerate(ranks):
        name = told.rstrip("+!")
        steps = {}
        for step in STEPS[: STEPS.index(name)] if name else ():
            steps[step] = StepState("done", facts=ADDRESS if step == "environment" else {})
        if name:
            kind = "done" if told.endswith("+") else "failed" if told.endswith("!") else "running"
            steps[name] = StepState(kind, error="OSError: why" if kind == "failed" else "")
        if rank in dict(addresses):
            steps["environment"] = StepState("done", facts={"address": dict(addresses)[rank]})
        made[rank] = steps
    return StartupState(len(ranks), made, tuple(dead))


@pytest.mark.parametrize(
    ("ranks", "rank", "needs", "sentence"),
    [
        (("store", "store", "device+", "device+"), 0, (2, 3), "waits in the store for 2 of 4 ranks: 2 and 3"),
        (("device+", "store"), 1, (0,), "waits for rank 0 to start the store at 127.0.0.1:29500"),
        (("store+", "store"), 1, (), "is at store"),
        (("process group", "store+"), 0, (1,), "waits in process group for 1 of 2 ranks: 1"),
        (("process group", "store!"), 0, (1,), "waits in process group for 1 of 2 ranks: 1 (failed at store)"),
        (("backward", "forward+"), 0, (1,), "waits in backward for 1 of 2 ranks: 1"),
        (("forward", "wrap+"), 0, (), "is at forward"),
        (("store!", "device+"), 0, (), "failed at store: OSError: why"),
        (("device+", ""), 0, (), "ready for store"),
        (("optimizer step+", ""), 0, (), "all steps are done"),
    ],
)
def test_what_a_rank_waits_for(ranks, rank, needs, sentence):
    found = state(*ranks)
    assert startup_waits.needs(found, rank) == needs
    assert startup_waits.sentence(found, rank) == sentence


def test_a_dead_rank_is_waited_for():
    found = state("first barrier", "first barrier", dead=(1,))
    assert startup_waits.needs(found, 0) == (1,)
    assert startup_waits.sentence(found, 0).endswith(": 1 (dead)") and startup_waits.sentence(found, 1) == "is dead"


def test_one_that_looks_at_another_address_does_not_come():
    found = state("store", "store", addresses=[(0, "a:1"), (1, "a:2")])
    assert startup_waits.needs(found, 0) == (1,) and "(rank 1 is at a:2" in startup_waits.sentence(found, 0)


def test_where_all_have_stopped():
    assert state("store", "device+").stopped_at == "store"
    assert state("store", "device!").stopped_at == "device"
    done = state("optimizer step+", "optimizer step+")
    assert done.done and done.stopped_at is None


def test_facts_that_differ():
    ranks = {
        rank: {"device": StepState("done", facts={"torch": version, "device": f"cuda:{rank}"})}
        for rank, version in enumerate(["2.13.0", "2.13.0", "2.12.1"])
    }
    found = startup_waits.odd_facts(StartupState(3, ranks), "device")
    assert found == {"torch": {0: "2.13.0", 1: "2.13.0", 2: "2.12.1"}}


def test_notes_say_what_several_ranks_do_once():
    found = StartupState(3, {0: {}, 1: {}, 2: {}}, dead=(1,), stopped=(2,))
    assert startup_waits.notes(found) == [
        "rank 0: ready for environment",
        "rank 1: is dead",
        "rank 2: is stopped (SIGSTOP)",
    ]
    assert startup_waits.notes(state("store+", "store+", "store")) == [
        "ranks 0 and 1: ready for process group",
        "rank 2: is at store",
    ]
    both = state("store", "store", "device+")
    assert "rank 0: waits in the store for 1 of 3 ranks: 2" in startup_waits.notes(both)
