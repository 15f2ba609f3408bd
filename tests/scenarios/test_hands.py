"""Hold, step, look into frames, release, rebuild: on real ranks."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time

import pytest

import ddpnb
from ddpnb.errors import LaunchError, UsageError, WorldError
from ddpnb.recording.holds import NEEDS_3_12
from ddpnb.recording.marks import HeldTime
from ddpnb.world import ranks
from tests.conftest import VICTIMS, alive
from tests.victims import hands

pytestmark = pytest.mark.world

needs_path = pytest.mark.skipif(sys.version_info < (3, 12), reason=NEEDS_3_12)
SCRIPT = VICTIMS / "hands.py"


def until(world, so):
    """The world's status once it is so, or after half a minute."""
    deadline = time.monotonic() + 240
    while not so(status := world.status()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return status


# -- hold and step


def test_hold_step_look_and_go_on(world):
    holding = world.hold("all_reduce", seq=5)
    run = world.run(hands.steps, 12, stream=None, patience=0.7)
    status = holding.wait(60)
    assert status.held == (0, 1, 2, 3), status
    assert "held before all_reduce #5" in str(status)
    assert world.evaluate("step").values_by_rank == dict.fromkeys(range(4), 4)
    assert world.evaluate("[mine for _ in range(1)][0]", ranks=[1, 2]).values_by_rank == {1: 4, 2: 5}
    assert world.diff().differing["mine"] == {0: "4", 1: "4", 2: "5", 3: "4"}
    assert "rank" in world.diff().differing and "step" not in world.diff().differing

    time.sleep(run.patience + 0.5)  # longer than a rank may stand anywhere else
    assert run.outcome == "running" and not run.diagnosis.errors, str(run.diagnosis)

    assert {one.call.seq for one in world.step(2).ranks} == {7}
    alone = world.step(ranks=0)
    assert alone[0].state == "waiting" and alone.held == (1, 2, 3)
    assert {one.call.seq for one in world.step(ranks=[1, 2, 3]).ranks} == {8}
    world.resume()
    assert run.wait(30).outcome == "ok" and run.results[2] == [2, 12]
    assert all(one.parts.held > run.patience for one in run.account.ranks), (
        "time in which a rank is held is not compute"
    )
    assert all(HeldTime().take(record.marks) for record in run.recording.ranks.values())


def test_a_step_into_a_backward_that_waits_for_others(world):
    """DDP waits inside of torch: the rank's stack tells for which call."""
    holding = world.hold("all_reduce", seq=4)
    run = world.run(hands.trains, 4, stream=None)
    assert holding.wait(60).held == (0, 1, 2, 3)
    alone = world.step(ranks=1, timeout=30)
    assert alone[1].state == "waiting" and "all_reduce" in alone[1].doing and alone.held == (0, 2, 3), alone
    world.resume()
    assert run.wait(30).outcome == "ok"


def test_a_hold_ends_with_its_run(world):
    holding = world.hold(seq=2)
    run = world.run(hands.steps, 4, stream=None)
    assert holding.wait(60).held == (0, 1, 2, 3)
    world.resume()
    assert run.wait(30).outcome == "ok"
    assert world.run(hands.steps, 4, stream=None).wait(30).outcome == "ok"


def test_one_that_is_armed_while_a_run_goes_on_ends_with_that_run(world):
    world.hold(ranks=0)
    run = world.run(hands.steps, 4, stream=None)
    until(world, lambda status: [rank.state for rank in status.ranks] == ["held", "waiting", "waiting", "waiting"])
    world.hold(seq=3)
    world.resume()
    status = until(world, lambda status: len(status.held) == 4)
    assert status.held == (0, 1, 2, 3) and status[2].call.seq == 3
    world.resume()
    assert run.wait(30).outcome == "ok"
    assert world.run(hands.steps, 4, stream=None).wait(30).outcome == "ok"


def leave_what_takes_long_to_collect():
    import gc

    class Slow:
        def __init__(self):
            self.itself = self

        def __del__(self):
            gc.enable()
            time.sleep(1)

    gc.disable()
    Slow()


@pytest.mark.full
def test_one_that_is_armed_before_the_run_begins_on_the_ranks_is_not_forgotten(world, tmp_path):
    """A rank that collects what the last run has left begins the next one a second after it is ordered."""
    (tmp_path / "train.py").write_text(
        "import torch, torch.distributed as dist\ndist.init_process_group()\ndist.all_reduce(torch.ones(1))\n"
    )
    world.run(leave_what_takes_long_to_collect, stream=None).wait(30)
    run = world.run(tmp_path / "train.py", stream=None)
    holding = world.hold("all_reduce")
    assert holding.wait(60).held == (0, 1, 2, 3)
    world.resume()
    assert run.wait(30).outcome == "ok"


@pytest.mark.parametrize(
    ("conditions", "seq"),
    [
        ({"when": "step == 2 and rank == 1"}, 3),
        ({"site": "steps", "seq": 4}, 4),
        ({"site": "hands.py", "group": "0,1,2,3"}, 1),
        ({"before": ["broadcast", "all_reduce"], "group": "default_pg"}, 1),
    ],
)
def test_conditions(world, conditions, seq):
    holding = world.hold(ranks=1, **conditions)
    run = world.run(hands.steps, 6, stream=None)
    holding.wait(60)
    status = until(world, lambda status: all(status[rank].doing.endswith("for rank 1") for rank in (0, 2, 3)))
    assert status.held == (1,) and status[1].call.seq == seq
    assert status[0].state == "waiting"
    holding.remove()
    assert world.status().held == (1,)
    world.resume()
    assert run.wait(30).outcome == "ok"


@needs_path
def test_ranks_are_held_at_their_first_call_after_they_parted(world):
    """Before a number is wrong: the next call has the same operation and shape."""
    holding = world.hold(parted=True)
    assert str(holding.hold) == "where ranks part"
    run = world.run(hands.parts_by, "continue", stream=None)
    status = holding.wait(60)
    assert {one.call.seq for one in status.ranks} == {4} and status.held, status
    assert all(one.state in ("held", "waiting") for one in status.ranks)
    text = str(status)
    assert "in parts_by (iterations of the loop since the last call: " in text and "parted from rank" in text
    assert run.outcome == "running" and not run.diagnosis.errors
    (parted,) = world.partings()
    text = SCRIPT.read_text().splitlines()[parted.site.line - 1].strip()
    assert (parted.site.function, text, parted.odd) == ("parts_by", 'if what == "continue" and odd:', (1,))
    assert world.diff(1).differing["step"] == {0: "3", 1: "4", 2: "3", 3: "3"}
    assert world.evaluate("step", frame=1).values_by_rank == {0: 3, 1: 4, 2: 3, 3: 3}

    world.resume()  # they agree from here on, until rank 1 leaves the loop
    status = holding.wait(60)
    assert {one.call.seq for one in status.ranks} == {8} and status.held, status
    assert "in parts_by (here: line" in str(status)
    holding.remove()
    world.resume()
    assert run.wait(30).outcome == "hang"
    world.release()


@needs_path
@pytest.mark.full
@pytest.mark.parametrize(("what", "seq"), [("if", 4), ("exception", 4), ("return", 4), ("extra", 5), ("break", 6)])
def test_ranks_are_held_however_they_part(world, what, seq):
    holding = world.hold(parted=True)
    run = world.run(hands.parts_by, what, stream=None)
    status = holding.wait(60)
    assert {one.call.seq for one in status.ranks} == {seq} and status.held, status
    world.release()
    run.wait(30)


@pytest.mark.full
@needs_path
def test_ranks_that_differ_without_harm_are_not_held(world):
    holding = world.hold(parted=True)
    run = world.run(hands.trains_with_roles, 20, stream=None)
    status = holding.wait(60)
    assert not status.held, status
    assert run.wait(30).outcome == "ok" and run.results[0] == 19


def test_a_condition_that_cannot_be_evaluated_holds_nobody(world):
    world.hold(when="nothing_of_that_name > 2")
    assert world.run(hands.steps, 3, stream=None).wait(30).outcome == "ok"


TIMEOUT = "dist.group.WORLD._get_backend(torch.device('cpu')).options._timeout.total_seconds()"


@pytest.fixture
def group_of_4_s(world):
    """A process group with a time-out of 4 s, which cells share."""
    made = world.execute(
        "import torch, torch.distributed as dist, datetime\n"
        "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=4))\n"
        "x = torch.ones(1)",
        stream=None,
    ).wait(30)
    assert made.outcome == "ok", f"{made.diagnosis}\n{made.log(0)}"


@pytest.mark.full
@pytest.mark.usefixtures("group_of_4_s")
def test_the_groups_time_out_does_not_run_while_somebody_is_held(world):
    holding = world.hold(ranks=1)
    run = world.execute("dist.all_reduce(x)", stream=None)
    assert holding.wait(60).held == (1,)
    time.sleep(5)
    world.resume()
    assert run.wait(30).outcome == "ok", run.log(0)
    assert world.evaluate(TIMEOUT).values_by_rank == dict.fromkeys(range(4), 4.0)


@pytest.mark.usefixtures("group_of_4_s")
def test_a_run_after_one_that_ended_by_steps_has_the_groups_time_out(world):
    holding = world.hold(ranks=1)
    run = world.execute("dist.all_reduce(x)", stream=None)
    assert holding.wait(60).held == (1,)
    world.step()
    assert run.wait(30).outcome == "ok", run.log(0)
    assert world.execute("y = 1", stream=None).wait(30).outcome == "ok"
    assert world.evaluate(TIMEOUT).values_by_rank == dict.fromkeys(range(4), 4.0)


@pytest.mark.usefixtures("group_of_4_s")
def test_a_run_that_begins_while_another_rank_is_held_has_no_time_out(world):
    holding = world.hold(ranks=0)
    first = world.execute("dist.all_reduce(x)", ranks=0, stream=None)
    assert holding.wait(60).held == (0,)
    assert world.execute("y = 1", ranks=1, stream=None).wait(30).outcome == "ok"
    assert min(world.evaluate(TIMEOUT).values_by_rank.values()) > 86_400
    rest = world.execute("dist.all_reduce(x)", ranks=[1, 2, 3], stream=None)
    world.resume()
    assert (first.wait(30).outcome, rest.wait(30).outcome) == ("ok", "ok"), first.log(0)
    assert world.evaluate(TIMEOUT).values_by_rank == dict.fromkeys(range(4), 4.0)


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda w: w.hold("allreduce"), UsageError, "Did you mean 'all_reduce'"),
        (lambda w: w.hold(ranks=9), UsageError, "no rank 9 in a world of 4"),
        (lambda w: w.hold(when="x ="), UsageError, "is not a valid expression"),
        (lambda w: w.hold(seq=0), UsageError, "from 1"),
        (lambda w: w.hold(parted=True, seq=3), UsageError, "whichever that is"),
        (lambda w: w.hold(parted=True, ranks=3), UsageError, "One rank alone"),
        (lambda w: w.step(0), UsageError, "at least 1 collective"),
        (lambda w: w.step(), WorldError, "not held"),
        (lambda w: w.evaluate("a = 1"), UsageError, "world.execute"),
        (lambda w: w.execute("a b"), UsageError, "invalid Python syntax"),
        (lambda w: w.inject("skipp"), UsageError, "Did you mean 'skip'"),
        (lambda w: w.inject("skip", ranks=7), UsageError, "no rank 7"),
        (lambda w: w.inject("skip", op="allreduce"), UsageError, "Did you mean 'all_reduce'"),
        (lambda w: w.inject("other root", op="barrier"), UsageError, "does not apply to barrier"),
        (lambda w: w.inject("delay", seconds="long"), UsageError, "must be a number"),
        (lambda w: w.inject("delay", hours=1), UsageError, "It takes: seconds"),
        (lambda w: w.inject(ddpnb.Fault("skip"), seq=3), UsageError, "carries its own conditions"),
    ],
)
def test_wrong_use_says_what_to_do(world, wrong, error, words):
    with pytest.raises(error) as raised:
        wrong(world)
    assert words in str(raised.value)


@pytest.mark.full
def test_models_of_earlier_cells_are_compared(world):
    world.rebuild()
    make = """
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(nn.Linear(4, 2))
model(torch.ones(1, 4)).sum().backward()
"""
    assert world.execute(make, stream=None).wait(60).outcome == "ok"
    assert world.execute("x = 1", stream=None).wait(30).outcome == "ok"
    found = world.compare()
    assert found.equal and found.compared == 2 and found.exact, found
    with_torch = "with torch.no_grad(): model.module.bias[0] += 1"
    assert world.execute(with_torch, ranks=1, stream=None).wait(30).outcome == "ok"
    assert [one.name for one in world.compare().differences] == ["bias"]
    world.run(hands.begins, stream=None).wait(30)  # a function with a group of its own: the cells' group is gone


# -- expressions


def test_expressions_that_raise_or_do_not_end(world):
    world.execute("import time, torch\nbig = torch.ones(100, 100)\nsmall = [1, 2]", stream=None).wait(30)
    found = world.evaluate("1 / 0", ranks=2)
    assert found[2].error == "ZeroDivisionError: division by zero" and "division" in str(found)
    assert "no answer within 0.3 s" in world.evaluate("time.sleep(60)", ranks=1, timeout=0.3)[1].error
    assert world.evaluate("small", ranks=1)[1].text == "[1, 2]"
    assert world.evaluate("big", ranks=1)[1].text == "tensor[100, 100] float32 cpu norm 100"
    assert "no frame" not in world.evaluate("small", ranks=1, frame=7)[1].error  # at the prompt there are no frames


# -- release


def until_they_stand(world, seconds):
    """Until no rank moves any more, for half a second; one that computes for ever does not keep us long."""
    still, end = time.monotonic(), time.monotonic() + seconds
    before = None
    while time.monotonic() < end and time.monotonic() - still < 0.5:
        time.sleep(0.25)  # asked more often they compute, to answer
        now = [(one.state, one.doing) for one in world.status().ranks]
        if now != before or any(state in ("computing", "idle", "unknown") for state, _ in now):
            before, still = now, time.monotonic()


@pytest.mark.parametrize(
    "places",
    [
        ("backward",),
        pytest.param(("loop", "pipe", "receive"), marks=pytest.mark.full),
        *(
            pytest.param((place,), marks=pytest.mark.full)
            for place in ("sleep", "lock", "loop", "receive", "new group")
        ),
        pytest.param(("sleep", "queue", "lock"), marks=pytest.mark.full),
        pytest.param(("before start", "wrong port"), marks=pytest.mark.full),
    ],
    ids=" ".join,
)
def test_release_from_wherever_ranks_stand(world, places):
    pids = world.pids()
    run = world.run(hands.stands_in, *places, stream=None)
    until_they_stand(world, 2 if "loop" in places else 15)
    freed = world.release()
    assert not freed.left and {1 + number for number in range(len(places))} <= {*freed.ranks}, freed
    raised = {rank: ending.exception for rank, ending in run.endings.items()}
    assert set(raised.values()) == {"Released"}, raised
    if "backward" in places:
        assert "caught Released" in run.log(0)
    # the very same processes serve the next run, which begins with a group of its own
    assert world.run(hands.steps, 3, stream=None).wait(30).outcome == "ok"
    assert world.pids() == pids


def test_a_hang_keeps_its_verdict_when_it_is_released(world):
    run = world.run(hands.steps, 6, 3, stream=None).wait(30)
    assert run.outcome == "hang" and run.diagnosis.findings[0].culprits == (1,)
    freed = world.release()
    assert freed.ranks == (0, 2, 3) and run.outcome == "hang"
    assert run.log(0).startswith("ddpnb: released by world.release(). It was at ")


@pytest.mark.full
def test_a_run_that_was_well_is_released(world):
    run = world.run(hands.stands_in, "loop", stream=None)
    time.sleep(0.5)
    world.release()
    assert run.outcome == "released" and world.status()[0].state == "ended"


@pytest.mark.full
@pytest.mark.parametrize("turns", [2, pytest.param(8, marks=pytest.mark.full)])
def test_ranks_in_the_midst_of_collectives_are_released(world, turns):
    """Messages are on their way between the ranks: gloo must not lose one whose thread then waits for its time-out."""
    pids = world.pids()
    for turn in range(turns):
        run = world.run(hands.steps, 100_000_000, stream=None)
        deadline = time.monotonic() + 240
        while not world.status()[0].call and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.3 + 0.01 * turn)
        freed = world.release()
        assert not freed.left, (turn, freed)
        assert {ending.exception for ending in run.endings.values()} == {"Released"}
    assert world.run(hands.steps, 3, stream=None).wait(30).outcome == "ok"
    assert world.pids() == pids


def test_nothing_to_release(world):
    assert "no rank is in a run" in str(world.release())


@pytest.mark.full
def test_whoever_catches_the_exception_goes_on(world):
    run = world.run(hands.catches, stream=None)
    deadline = time.monotonic() + 240
    while world.status()[0].state != "waiting" and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)  # rank 1 has as little to do as rank 0 until it sleeps
    freed = world.release(30)
    assert freed.ranks == (0, 1, 2, 3) and run.results[0] == ["Released", "Released"] and run.results[1] == ["Released"]


def test_held_ranks_are_released(world):
    holding = world.hold(ranks=[0, 2])
    run = world.run(hands.steps, 3, stream=None)
    assert holding.wait(60).held == (0, 2)
    assert world.release().ranks == (0, 1, 2, 3) and run.outcome == "released", str(run.diagnosis)
    assert world.run(hands.steps, 3, stream=None).wait(30).outcome == "ok"


# -- go on in the same processes

TRAIN = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(first, last, skips=-1):
    global step
    for step in range(first, last):
        if step == skips and dist.get_rank() == 1:
            continue
        optimizer.zero_grad()
        model(torch.full((2, 4), 1.0 * dist.get_rank())).square().sum().backward()
        optimizer.step()
train(0, 3)
"""


def test_released_and_rebuilt_the_same_model_trains_on(world):
    pids = world.pids()
    world.rebuild()
    assert world.execute(TRAIN, stream=None).wait(60).outcome == "ok"
    hang = world.execute("train(3, 8, skips=5)", stream=None).wait(60)
    assert hang.outcome == "hang"
    assert not world.release().left
    startup = world.rebuild()
    assert startup.facts("process group")[0]["models kept"] == 1
    assert world.evaluate("step").values_by_rank[0] == 7
    done = world.execute("train(step, 12); step", stream=None).wait(60)
    assert done.outcome == "ok", done.diagnosis
    assert done.log(2).strip() == "11" and world.pids() == pids and all(map(alive, pids))
    assert world.compare().equal  # gradients are averaged again


@pytest.mark.full
def test_a_cell_on_some_ranks(world):
    assert world.execute("value = 1", stream=None).wait(30).outcome == "ok"
    run = world.execute("value += 5; value", ranks=[1, 2], stream=None).wait(30)
    assert run.outcome == "ok" and run.log(1).strip() == "6"
    assert world.evaluate("value").values_by_rank == {0: 1, 1: 6, 2: 6, 3: 1}
    world.rebuild()
    run = world.execute("import torch\ntorch.distributed.all_reduce(torch.ones(1))", ranks=[0, 1], stream=None).wait(30)
    assert run.outcome == "hang" and run.diagnosis.findings[0].waiting == (0, 1)
    assert world.release().ranks == (0, 1)


@pytest.mark.full
def test_a_function_finds_the_group_of_the_world_and_a_script_makes_its_own(world):
    world.rebuild()
    assert world.run(hands.shares, stream=None).wait(30).results == [4.0] * 4
    assert world.run(hands.fails, stream=None).wait(30).outcome == "crash"
    assert world.run(hands.shares, stream=None).wait(30).results == [4.0] * 4  # it was made again
    assert world.run(hands.begins, stream=None).wait(30).results == [4.0] * 4  # ours gives way
    world.rebuild()
    assert world.run(SCRIPT, "begins", stream=None).wait(30).outcome == "ok"


# -- dead and replaced


@pytest.mark.full
def test_hands_on_a_dead_rank(world):
    world.inject("kill", ranks=3, op="all_reduce")
    run = world.run(hands.steps, 4, stream=None).wait(30)
    assert (run.outcome, run.diagnosis.findings[0].code) == ("crash", "DDP311")
    for wrong in (lambda: world.hold(ranks=3), lambda: world.step(ranks=[3]), lambda: world.inject("skip", ranks=3)):
        with pytest.raises(WorldError, match=r"rank 3 is dead(.|\n)*world.restart\(3\)"):
            wrong()
    with pytest.raises(WorldError, match="is dead"):
        world.init()
    assert sorted(world.evaluate("1 + 1")) == [0, 1, 2]
    assert 3 not in world.release().ranks
    before = world.pids()
    world.restart(3)
    assert [a == b for a, b in zip(before, world.pids(), strict=True)] == [True, True, True, False]
    assert world.run(hands.steps, 3, stream=None).wait(30).outcome == "ok"


@pytest.mark.full
def test_a_rank_that_is_terminated_in_a_cell_ends_at_once(world):
    """Not when its cell is over, which may be never."""
    run = world.execute("import time\nprint('begun', flush=True)\ntime.sleep(600)", stream=None)
    deadline = time.monotonic() + 240
    while "begun" not in run.log(1) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(world.pids()[1], signal.SIGTERM)
    assert run.wait(30).outcome == "crash"
    first = run.diagnosis.findings[0]
    assert (first.code, first.culprits) == ("DDP311", (1,)) and "SIGTERM" in str(run.diagnosis)
    world.release()
    world.restart(1)
    assert world.run(hands.steps, 3, stream=None).wait(30).outcome == "ok"


def test_an_idle_rank_that_was_just_killed_is_replaced(world):
    before = world.pids()
    os.kill(before[1], signal.SIGKILL)
    deadline = time.monotonic() + 240
    while alive(before[1]) and time.monotonic() < deadline:
        time.sleep(0.0005)
    world.restart()  # at once: the launcher may not have its exit status yet
    assert [a == b for a, b in zip(before, world.pids(), strict=True)] == [True, False, True, True]
    run = world.run(hands.steps, 3, stream=None).wait(30)
    assert run.outcome == "ok" and None not in run.results


def interrupted(*_args, **_more):
    raise KeyboardInterrupt


def refused(*_args, **_more):
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.mark.parametrize(
    ("where", "name", "fails", "raised"),
    [
        pytest.param("_engines", "_wait_for", interrupted, KeyboardInterrupt, marks=pytest.mark.full),
        ("_engines", "kill", interrupted, KeyboardInterrupt),
        pytest.param("_cluster", "_start_engine", refused, LaunchError, marks=pytest.mark.full),
    ],
)
def test_a_restart_that_is_interrupted_or_refused_leaves_no_rank_that_cannot_be_reached(
    world, monkeypatch, where, name, fails, raised
):
    """Such a rank looked alive, and the next run was never begun on it: the healthy ranks were blamed."""
    before = world.pids()
    with monkeypatch.context() as failing:
        owner = world._ranks.processes if where == "_engines" else world._ranks.processes._cluster
        failing.setattr(owner, name, fails)
        with pytest.raises(raised):
            world.restart([1, 2])
        assert not {f"rank{rank}.box.new" for rank in (1, 2)} & {*os.listdir(world._ranks.folders.memory)}
    if name != "kill":
        assert not any(world._ranks.processes.alive(rank) for rank in (1, 2))
        assert sorted(world.evaluate("1 + 1")) == [0, 3]
        with pytest.raises(WorldError, match=r"rank 1 is dead(.|\n)*world.restart\(1\)"):
            world.evaluate("1 + 1", ranks=1)
    run = world.run(hands.steps, 3, stream=None).wait(60)
    assert run.outcome == "ok" and None not in run.results
    assert [a == b for a, b in zip(before, world.pids(), strict=True)] == [True, name == "kill", name == "kill", True]


@pytest.mark.full
def test_a_held_rank_is_replaced(world):
    holding = world.hold(seq=2)
    world.run(hands.steps, 4, stream=None)
    assert holding.wait(60).held == (0, 1, 2, 3)
    world.restart(1)
    assert world.status().held == (0, 2, 3)
    assert world.release().ranks == (0, 2, 3)
    assert world.run(hands.steps, 3, stream=None).wait(30).outcome == "ok"


@pytest.mark.full
def test_a_stopped_rank_is_not_released_and_said_to_be_so(world, monkeypatch):
    world.inject("freeze", ranks=2, op="all_reduce")
    assert world.run(hands.steps, 4, stream=None, patience=0.7).wait(30).diagnosis.findings[0].code == "DDP314"
    freed = world.release(2)
    assert list(freed.left) == [2] and "world.restart(2) replaces it" in str(freed)
    monkeypatch.setattr(ranks, "ANSWER_S", 0.3)
    with pytest.raises(WorldError, match="is unresponsive"):
        world.hold(ranks=2)
    world.restart(2)
    assert world.run(hands.steps, 3, stream=None).wait(30).outcome == "ok"


def test_replicas_are_not_compared_with_a_stopped_rank(world):
    os.kill(world.pids()[2], signal.SIGSTOP)
    began = time.monotonic()
    try:
        with pytest.raises(WorldError, match=r"Rank 2 is stopped(.|\n)*world.restart\(2\)"):
            world.compare()
    finally:
        os.kill(world.pids()[2], signal.SIGCONT)
    assert time.monotonic() - began < 20
    world.compare()
