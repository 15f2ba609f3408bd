"""The present state of the ranks: what goes on now, and how the last run ended, kept apart."""

from __future__ import annotations

import pytest

from ddpnb.recording.calls import CallState
from ddpnb.render.views.present import Processes, RunState, present
from tests.rules.recordings import Rank, diagnose, line, record

ALL = frozenset({0, 1, 2})


def hang(*, third=None):
    """Ranks 0 and 2 wait in an all_reduce that rank 1 has left without."""
    waiting = [Rank(rank, 3).waits("all_reduce", line(9)) for rank in (0, 2)]
    return record(waiting[0], Rank(1, 3).finishes(), third or waiting[1])


def left():
    """All have left that run, as after a release."""
    return record(*(Rank(rank, 3).waits("all_reduce", line(9)).raises("RuntimeError") for rank in range(3)))


def states(now):
    return [(tile.state.value, tile.last) for tile in now.tiles]


def test_before_any_run_all_is_idle():
    now = present(record(*(Rank(rank, 2).absent() for rank in range(2))))
    assert (now.activity, now.last, now.over, now.busy) == ("idle", "", False, False)
    assert states(now) == [("idle", ""), ("idle", "")]


def test_a_hang_is_what_goes_on_until_its_ranks_have_left():
    found = hang()
    now = present(found, RunState("hang", frozenset({0, 2})), diagnose(found))
    assert (now.activity, now.last, now.busy) == ("hang", "", True)
    assert "ranks 0 and 2 are still in the run" in now.details
    assert [tile.state for tile in now.tiles] == ["waiting", "ended", "waiting"]
    assert now.tiles[1].finding == now.diagnosis.findings[0].code


def test_when_it_is_over_all_ranks_are_idle_and_the_outcome_is_that_of_the_last_run():
    now = present(left(), RunState("hang"), diagnose(hang()))
    assert (now.activity, now.last, now.over, now.busy) == ("idle", "hang", True, False)
    assert states(now) == [("idle", "RuntimeError")] * 3
    assert not any(tile.missing or tile.since_s for tile in now.tiles)
    assert now.diagnosis.findings


def test_the_ranks_of_a_job_have_ended_with_it():
    now = present(left(), RunState("crash"), None, Processes({0: 1, 1: 1, 2: 1}, ends_with_script=True))
    assert (now.activity, now.last, now.dead) == ("ended", "crash", ())
    assert [tile.state for tile in now.tiles] == ["ended"] * 3 and not any(tile.dead for tile in now.tiles)


@pytest.mark.parametrize(
    ("given", "activity"),
    [
        ({}, "running"),
        ({"closed": True}, "closed"),
        ({"starting": {1: "store"}}, "starting"),
    ],
)
def test_what_goes_on(given, activity):
    now = present(record(*(Rank(rank, 3).computes() for rank in range(3))), RunState("running", ALL), **given)
    assert now.activity == activity
    if "starting" in given:
        assert (now.tiles[1].state, now.tiles[1].doing) == ("starting", "start-up: store")


def test_a_rank_that_is_held_holds_the_run():
    ranks = [Rank(rank, 2).calls("all_reduce", line(3), state=CallState.HELD).idles(1.0, line(3)) for rank in (0, 1)]
    assert present(record(*ranks), RunState("running", frozenset({0, 1}))).activity == "held"
    assert present(record(*ranks), RunState("released")).activity == "idle"


@pytest.mark.parametrize("status", [-9, None])
def test_a_dead_rank_is_dead_at_once_though_its_last_run_was_fine(status):
    ended = record(*(Rank(rank, 2).calls("all_reduce", line(3)).finishes() for rank in range(2)))
    now = present(ended, RunState("ok"), diagnose(ended), Processes({1: status}))
    assert (now.activity, now.last, now.dead, now.details) == ("idle", "ok", (1,), ("rank 1 is dead",))
    assert [(tile.state.value, tile.dead) for tile in now.tiles] == [("idle", False), ("ended", True)]
    assert now.tiles[1].doing.startswith("killed") and not now.tiles[1].well
    assert now.recording.ranks[1].ending.how == "died"  # what the time line and the stacks show, too


def test_a_run_of_ranks_that_were_replaced_blames_none_of_the_new_processes():
    now = present(left(), RunState("hang", replaced=frozenset({1})), diagnose(hang()))
    assert not any(tile.finding for tile in now.tiles) and now.diagnosis.findings


def test_holds_that_wait_for_a_run_are_named():
    assert present(left(), RunState("ok"), holds=1).details == ("a hold is armed",)
    assert present(left(), RunState("ok"), holds=2).details == ("2 holds are armed",)
