"""Functions and cells share the live state of the ranks; a script begins in a fresh one."""

from __future__ import annotations

import socket

import pytest
import torch
import torch.distributed as dist

import ddpnb
from tests.victims import live

pytestmark = pytest.mark.world


def ok(run):
    run.wait(60)
    assert run.outcome == "ok", f"{run.diagnosis}\n{run.log(0)}"
    return run


@pytest.fixture
def grouped(world):
    """A group that a function has made, and a model."""
    ok(world.run(live.begins, stream=None))
    return world


@pytest.mark.full
def test_a_function_and_a_cell_find_the_group_of_a_function(grouped):
    assert ok(grouped.run(live.uses, stream=None)).results == [4.0] * 4
    cell = "import torch, torch.distributed as dist\ntotal = torch.ones(1)\ndist.all_reduce(total)\ntotal.item()"
    assert ok(grouped.execute(cell, stream=None)).log(2).strip() == "4.0"


def test_a_function_finds_the_group_and_the_model_of_cells_and_leaves_its_variables(world):
    world.execute("import torch.distributed as dist\ndist.init_process_group('gloo')", stream=None).wait(60)
    cell = "import torch\nmodel = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\ncount = 0"
    ok(world.execute(cell, stream=None))

    def train_step():
        global count
        count += 1  # noqa: F821
        model(torch.ones(1, 2)).sum().backward()  # noqa: F821
        return count, dist.get_world_size()

    train_step = type(train_step)(train_step.__code__, vars(__import__("__main__")))  # as a cell of a notebook has it
    train_step.__module__ = "__main__"
    assert ok(world.run(train_step, stream=None)).results == [(1, 4)] * 4
    assert ok(world.run(train_step, stream=None)).results == [(2, 4)] * 4
    assert world.evaluate("count").values_by_rank[3] == 2
    assert world.compare().equal and world.compare().compared == 2


def test_a_module_keeps_its_variables(grouped):
    ok(grouped.run(live.makes, stream=None))
    assert ok(grouped.run(live.trains, stream=None)).results == [1] * 4
    assert ok(grouped.run(live.trains, stream=None)).results == [2] * 4


@pytest.mark.full
def test_an_own_group_replaces_it_and_wrapped_models_use_that(grouped):
    ok(grouped.run(live.makes, stream=None))
    ok(grouped.run(live.begins, stream=None))
    ok(grouped.execute("dist.init_process_group('gloo')", stream=None))
    ok(grouped.run(live.trains, stream=None))
    assert grouped.compare().equal


def test_two_groups_in_one_function_are_an_error_as_ever(grouped):
    run = grouped.run(live.begins_twice, stream=None).wait(60)
    assert run.outcome == "crash" and "default process group twice" in run.log(0)


@pytest.mark.full
def test_sequence_numbers_faults_and_holds_continue(grouped):
    before = ok(grouped.run(live.uses, stream=None)).recording.ranks[0].calls[-1].seq
    ok(grouped.run(live.uses, stream=None))
    assert grouped.snapshot().ranks[0].calls[-1].seq == before + 1
    holding = grouped.hold("all_reduce", seq=before + 2)
    run = grouped.run(live.uses, stream=None)
    assert holding.wait(60).held == (0, 1, 2, 3)
    holding.remove()
    grouped.resume()
    ok(run)
    grouped.inject("skip", ranks=1)
    run = grouped.run(live.uses, stream=None).wait(60)
    assert run.outcome == "hang" and run.diagnosis.findings[0].culprits == (1,), str(run.diagnosis)
    grouped.release()


@pytest.mark.full
def test_the_fence_is_that_of_the_run(grouped):
    ok(grouped.run(live.uses, stream=None, fence="off"))
    run = grouped.run(live.differs, stream=None).wait(60)
    assert run.outcome == "hang" and run.diagnosis.findings[0].code == "DDP303", str(run.diagnosis)
    grouped.release()
    ok(grouped.run(live.begins, stream=None, fence="off"))
    ok(grouped.run(live.uses, stream=None))
    run = grouped.run(live.differs, stream=None).wait(60)
    assert run.diagnosis.findings[0].code == "DDP303" and "fence" in "".join(map(run.log, range(4)))
    grouped.release()


@pytest.mark.full
def test_an_exception_leaves_the_group(grouped):
    assert grouped.run(live.raises, stream=None).wait(60).outcome == "crash"
    assert ok(grouped.run(live.uses, stream=None)).results == [4.0] * 4


@pytest.mark.full
def test_after_a_release_it_is_said_what_helps(grouped):
    ok(grouped.run(live.makes, stream=None))
    ok(grouped.execute("import torch.distributed as dist\npair = dist.new_group([0, 1])", stream=None))
    assert grouped.run(live.skips, stream=None).wait(60).outcome == "hang"
    assert not grouped.release().left
    run = grouped.run(live.trains, stream=None).wait(60)
    first = run.diagnosis.findings[0]
    assert first.culprits == (0, 1, 2, 3) and "closed by world.release()" in first.summary, str(run.diagnosis)
    assert "world.rebuild()" in first.remedy
    grouped.rebuild()
    assert ok(grouped.run(live.trains, stream=None)).results == [1] * 4


@pytest.mark.full
def test_after_a_release_functions_and_their_models_have_a_group_again(grouped):
    ok(grouped.run(live.makes, stream=None))
    assert grouped.run(live.skips, stream=None).wait(60).outcome == "hang"
    assert not grouped.release().left
    assert ok(grouped.run(live.trains, stream=None)).results == [1] * 4
    assert grouped.compare().equal


@pytest.mark.full
def test_after_a_release_a_function_may_begin_again(grouped):
    pids = grouped.pids()
    assert grouped.run(live.skips, stream=None).wait(60).outcome == "hang"
    assert not grouped.release().left
    ok(grouped.run(live.begins, stream=None))
    assert ok(grouped.run(live.uses, stream=None)).results == [4.0] * 4
    assert grouped.pids() == pids


@pytest.mark.full
def test_after_a_call_that_was_left_in_flight_it_is_said_what_helps(world, victims):
    ok(world.run(victims / "alone.py", stream=None))  # the World has no group of its own from then on
    ok(world.run(live.begins, stream=None))
    world.run(live.leaves_a_call, stream=None).wait(60)
    run = world.run(live.uses, stream=None).wait(60)
    assert run.outcome == "crash" and run.diagnosis.findings[0].code == "DDP102"
    assert "or world.rebuild() before it" in run.log(0)


def test_a_script_shares_nothing(grouped, tmp_path):
    (tmp_path / "script.py").write_text("import torch.distributed as dist\nassert not dist.is_initialized()\n" + BEGINS)
    ok(grouped.run(tmp_path / "script.py", stream=None))
    assert ok(grouped.run(live.has_group, stream=None)).results == [False] * 4


BEGINS = "dist.init_process_group('gloo')\n"


@pytest.mark.full
def test_a_rank_that_was_replaced_has_the_group_of_the_others(grouped):
    grouped.restart(2)
    assert ok(grouped.run(live.uses, stream=None)).results == [4.0] * 4
    ok(grouped.run(live.begins, stream=None))


@pytest.mark.full
def test_an_own_group_on_the_same_port_waits_until_rank_0_has_closed_the_old_store(forks):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ddpnb.launch(2, port=port, quiet=True, fork=forks) as other:
        for _ in range(3):
            ok(other.run(live.begins_late_on_rank_0, stream=None))


@pytest.mark.full
def test_a_script_that_needs_a_new_process_says_so(world, tmp_path):
    (tmp_path / "train.py").write_text("import torch\ntorch.set_num_interop_threads(2)\n")
    run = None
    for _ in range(2):
        run = world.run(tmp_path / "train.py", stream=None).wait(60)
    assert run.outcome == "crash" and "world.run(SCRIPT, fresh=True) runs the script" in run.log(0), run.log(0)
    assert world.run(tmp_path / "train.py", fresh=True, stream=None).wait(60).outcome == "ok"
