"""The next collective after a release, an interrupt or a restart works, or says what to type."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.conftest import alive
from tests.scenarios.test_hands import TRAIN

pytestmark = pytest.mark.world

SUM = "x = torch.full((2,), 1.0 + dist.get_rank())\ndist.all_reduce(x)\nx.tolist()"
SUMMED = "[10.0, 10.0]"
HANG = "if dist.get_rank() != 1:\n    dist.all_reduce(torch.ones(1))"


def cell(world, code, **more):
    return world.execute(code, stream=None, **more).wait(60)


def there(run):
    """Wait until each rank has printed so, and does what follows."""
    deadline = time.monotonic() + 240
    while not all("there" in run.log(rank) for rank in range(4)) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)


def ok(run, log=None):
    assert run.outcome == "ok", f"{run.diagnosis}\n{run.log(0)}"
    assert log is None or run.log(0).strip() == log
    return run


@pytest.fixture
def grouped(world):
    """A group with a time-out of its own, which cells have made, and a model in it."""
    begins = "import time, datetime, torch, torch.distributed as dist\n"
    begins += "dist.init_process_group(timeout=datetime.timedelta(minutes=7))\n"
    ok(cell(world, "for name in ('pair', 'world', 'held'): globals().pop(name, None)\n" + begins + TRAIN))
    return world


def test_the_group_of_a_hang_is_created_again_with_its_models(grouped, capsys):
    pids = grouped.pids()
    assert cell(grouped, "train(step + 1, step + 3, skips=step + 1)").outcome == "hang"
    freed = grouped.release()
    assert "the next cell or function creates it again" in str(freed) and not freed.left
    ok(cell(grouped, SUM), SUMMED)
    told = capsys.readouterr().out
    assert told == "" if grouped._ranks.quiet else "1 model wrapped" in told
    assert "1 model wrapped in DistributedDataParallel uses it." in grouped.startup.notes()
    assert {facts["time-out"] for facts in grouped.startup.facts("process group").values()} == {"420 s"}
    ok(cell(grouped, "train(step + 1, step + 3)"))
    assert grouped.compare().equal and grouped.pids() == pids


@pytest.mark.full
def test_a_function_finds_it_too_or_makes_its_own(grouped):
    assert cell(grouped, HANG).outcome == "hang"
    grouped.release()

    def total():
        import torch
        import torch.distributed as dist

        ones = torch.ones(1)
        dist.all_reduce(ones)
        return ones.item()

    def begins():
        import torch.distributed as dist

        dist.init_process_group("gloo")
        return total()

    assert ok(grouped.run(total, stream=None).wait(60)).results == [4.0] * 4
    assert cell(grouped, HANG).outcome == "hang"
    grouped.release()
    run = ok(grouped.run(begins, stream=None).wait(60))
    assert run.results == [4.0] * 4 and "ddpnb:" not in run.log(0)


@pytest.mark.full
def test_what_is_armed_waits_for_the_run_that_follows(grouped):
    assert cell(grouped, HANG).outcome == "hang"
    grouped.release()
    holding = grouped.hold(ranks=[0, 2])
    run = grouped.execute(SUM, stream=None)
    assert holding.wait(60).held == (0, 2)
    grouped.resume()
    ok(run.wait(60), SUMMED)


@pytest.mark.full
def test_what_cannot_use_another_group_is_named_and_left_to_rebuild(grouped):
    ok(
        cell(
            grouped,
            "pair = dist.new_group([0, 1])\nclass Held: pass\nheld = Held()\nheld.g = dist.group.WORLD\nworld = held.g",
        )
    )
    assert cell(grouped, HANG).outcome == "hang"
    again = "Make again what used the old groups: new_group([0, 1]), the variable world, Held (its g)."
    assert str(grouped.release()).endswith(f"world.rebuild() creates a new one. {again}")
    run = cell(grouped, SUM)
    summary = run.diagnosis.findings[0].summary
    assert "world.rebuild() (or %ddp_release --rebuild) creates a new one" in summary, summary
    startup = grouped.rebuild()
    assert again in str(startup) and "1 model wrapped in DistributedDataParallel uses it." in str(startup)
    ok(cell(grouped, SUM), SUMMED)
    stale = cell(grouped, "dist.all_reduce(x, group=pair)", ranks=[0, 1])
    assert stale.outcome == "crash" and "create it again with new_group()" in stale.log(0)


STANDS = """
import queue
print("there", flush=True)
if dist.get_rank() == 0:
    time.sleep(60)
elif dist.get_rank() == 1:
    queue.Queue().get()
while True:
    x = 1
"""


@pytest.mark.full
@pytest.mark.parametrize("code", [pytest.param(STANDS, id="no call"), pytest.param(SUM + STANDS, id="after a call")])
def test_an_interrupt_outside_of_collectives_keeps_the_group(grouped, code):
    ok(cell(grouped, "pair = dist.new_group([0, 1])"))
    run = grouped.execute(code, stream=None)
    there(run)
    freed = grouped.release()
    assert "the process group can be used as before" in str(freed) and freed.ranks == (0, 1, 2, 3), freed
    assert run.outcome == "released"
    ok(cell(grouped, SUM), SUMMED)
    ok(cell(grouped, "x = torch.ones(1)\ndist.all_reduce(x, group=pair)\nx.tolist()", ranks=[0, 1]), "[2.0]")
    ok(cell(grouped, "train(step + 1, step + 3)"))


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            "if dist.get_rank() == 0: dist.broadcast(torch.zeros(2), 0)", id="broadcast", marks=pytest.mark.full
        ),
        pytest.param("if dist.get_rank() == 0: dist.send(torch.zeros(2), 1)", id="send"),
        pytest.param(
            "if dist.get_rank() == 0: left = dist.all_reduce(torch.ones(2), async_op=True)",
            id="left in flight",
            marks=pytest.mark.full,
        ),
        pytest.param(
            "dist.all_reduce(torch.ones(1), async_op=True).wait() if dist.get_rank() else None",
            id="waits",
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_call_that_others_have_not_made_never_meets_a_later_one(grouped, code):
    """Gloo sends small messages before the receiver asks for them: in the same group the next call would get them."""
    run = grouped.execute(f"print('there', flush=True)\n{code}\ntime.sleep(60)", stream=None)
    there(run)
    freed = grouped.release()
    assert "the next cell or function creates it again" in str(freed), freed
    ok(cell(grouped, SUM), SUMMED)
    ok(cell(grouped, "train(step + 1, step + 3)"))


# -- restart


def test_a_dead_rank_is_replaced_and_the_others_keep_all(grouped):
    pids = grouped.pids()
    ok(cell(grouped, "kept = [dist.get_rank()]"))
    os.kill(pids[2], signal.SIGKILL)
    while alive(pids[2]):
        time.sleep(0.01)
    told = str(grouped.restart())
    assert "Rank 2 has a new process" in told and "Ranks 0, 1 and 3 keep" in told
    assert "created again on ranks 0-3" in told and "Only ranks 0, 1 and 3 have 1 model wrapped" in told
    assert [a == b for a, b in zip(pids, grouped.pids(), strict=True)] == [True, True, False, True]
    ok(cell(grouped, "kept.append(model.module.weight.shape)", ranks=[0, 1, 3]))
    ok(cell(grouped, f"import time, torch, torch.distributed as dist\n{SUM}"), SUMMED)


def test_those_that_wait_for_a_dead_rank_are_released_and_keep_all(grouped):
    pids = grouped.pids()
    died = "import os\nif dist.get_rank() == 2: os.kill(os.getpid(), 9)\nkept = 3\n"
    assert cell(grouped, died + SUM).outcome == "crash"
    told = str(grouped.restart())
    assert "Ranks 0, 1 and 3 keep" in told and "created again on ranks 0-3" in told, (
        told
    )  # gloo itself may end some waits
    assert [a == b for a, b in zip(pids, grouped.pids(), strict=True)] == [True, True, False, True]
    assert grouped.evaluate("kept", ranks=[0, 1, 3]).values_by_rank == {0: 3, 1: 3, 3: 3}
    ok(cell(grouped, f"import time, torch, torch.distributed as dist\n{SUM}"), SUMMED)


def test_without_a_reason_nothing_is_replaced(grouped):
    pids = grouped.pids()
    assert cell(grouped, "1 / 0").outcome == "crash"
    assert "no rank needs a new process" in str(grouped.restart())
    assert grouped.pids() == pids
    ok(cell(grouped, SUM), SUMMED)
