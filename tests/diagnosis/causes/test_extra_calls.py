"""A call that some ranks make alone: the smaller side is named, and in a tie none."""

from __future__ import annotations

import pytest

from ddpnb.model.stacks import Frame
from tests.diagnosis.causes.test_frameworks import library
from tests.diagnosis.recordings import TORCH_FRAME, Rank, Script, only_finding, record

EVALUATES = Script(
    """
    def main(rank):
        if rank == 0:
            evaluate()  # alone
        barrier()  # later

    main(2)  # called
    """
)


def rank_at(rank, mark, op, world, *above):
    rank = Rank(rank, world).waits(op, EVALUATES.at(mark), idle=5)
    outer = Frame(EVALUATES.file, EVALUATES.line("called"), "<module>")
    return rank.has_stack(outer, Frame(EVALUATES.file, EVALUATES.line(mark), "main"), *above, TORCH_FRAME)


def found_of(world, alone, *above):
    ranks = range(world)
    return only_finding(
        record(
            *(rank_at(r, "alone", "all_reduce", world, *above) for r in ranks if r in alone),
            *(rank_at(r, "later", "barrier", world) for r in ranks if r not in alone),
            script=EVALUATES,
        )
    )


@pytest.mark.parametrize(("world", "alone"), [(3, (0,)), (3, (2,)), (4, (1,)), (5, (0, 3))])
def test_fewer_ranks_that_made_a_call_alone_are_named(world, alone):
    found = found_of(world, alone)
    assert (found.code, found.culprits, found.certainty) == ("DDP301", alone, "likely")
    assert found.waiting == tuple(rank for rank in range(world) if rank not in alone)
    assert found.collective.op == "barrier"
    assert found.summary.startswith("Only rank")
    assert f"called the all_reduce at {EVALUATES.file}:{EVALUATES.line('alone')}" in found.summary
    assert (alone[0], EVALUATES.at("alone")) in found.where


@pytest.mark.parametrize("alone", [(0,), (1,), (0, 3)])
def test_of_two_equal_sides_none_is_named(alone):
    found = found_of(2 * len(alone), alone)
    assert (found.code, found.culprits) == ("DDP301", ())
    assert alone in found.sides
    assert "one side skipped the call of the other" in found.summary


@pytest.mark.parametrize("passing", [(0,), (2,)])
def test_fewer_ranks_that_passed_the_call_of_the_others_skipped_it(passing):
    found = found_of(4, tuple(rank for rank in range(4) if rank not in passing))
    assert (found.code, found.culprits) == ("DDP301", passing)
    assert "did not call the all_reduce" in found.summary


def test_the_framework_of_the_extra_call_is_in_the_remedy():
    found = found_of(3, (0,), library("/accelerate/accelerator.py", "gather_for_metrics"))
    assert found.culprits == (0,)
    assert found.remedy.startswith("accelerator.gather_for_metrics() is a collective: call it on all ranks.")


def test_a_call_that_all_ranks_made_in_its_turn_until_now_was_skipped():
    """Also by most of them: their own past tells it."""
    script = Script(
        """
        def main():
            for x in data:
                if counts(x):
                    all_reduce(n)  # turn
                barrier()  # each
        """
    )
    ranks = [Rank(r, 3) for r in range(3)]
    for rank in ranks:
        for _ in range(3):
            rank.calls("all_reduce", script.at("turn")).calls("barrier", script.at("each"))
    ranks[0].waits("all_reduce", script.at("turn"), idle=5)
    for rank in ranks[1:]:
        rank.waits("barrier", script.at("each"), idle=5)
    assert only_finding(record(*ranks, script=script)).culprits == (1, 2)


@pytest.mark.parametrize("past", [0, 1])
def test_of_two_ranks_the_one_that_came_back_from_what_the_other_is_still_in(past):
    """Both ran the line of a framework's loop; on one of them it has ended."""
    script = Script(
        """
        trainer.fit(model)  # fit
        trainer.save()  # save
        """
    )
    ranks = []
    for number in range(2):
        mark, op = ("save", "barrier") if number == past else ("fit", "broadcast")
        rank = (
            Rank(number, 2)
            .calls("all_reduce", script.at("fit", "<module>"))
            .waits(op, script.at(mark, "<module>"), idle=5)
        )
        ranks.append(rank.has_stack(Frame(script.file, script.line(mark), "<module>"), TORCH_FRAME))
    assert only_finding(record(*ranks, script=script)).culprits == (past,)
