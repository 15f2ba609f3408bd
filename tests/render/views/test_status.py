"""What a rank is doing, in a line; and that one that is held is no hang."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import Call, CallState, Group, Signature, Site
from ddpnb.recording.ending import Ending
from ddpnb.recording.events.runs import Caller, Checkpoint, Elsewhere, RanksPart
from ddpnb.recording.recording import Process, RankRecord, Recording
from ddpnb.render.status import status as table
from ddpnb.render.views.status import status
from tests.rules.recordings import diagnose

WORLD = Group((0, 1, 2), label="default_pg")
IDLE = Process("idle", 100.0)


def rank(number, state, seq=5):
    site = Site("/train.py", 9, "main")
    calls = tuple(
        Call(n, WORLD, n + 1, Signature("all_reduce", ((4,),), ("float32",)), site, CallState.COMPLETED, entered_ns=1)
        for n in range(seq)
    )
    return RankRecord(number, calls=(*calls[:-1], replace(calls[-1], state=state)), process=IDLE)


def test_a_held_rank_is_late_and_nothing_is_wrong():
    taken = Recording(3, {0: rank(0, CallState.WAITING), 1: rank(1, CallState.HELD), 2: rank(2, CallState.WAITING)})
    found = diagnose(taken, 1.0)
    assert found.outcome == "ok" and not found.errors and not found.settled
    told = status(taken)
    assert told[1].state == "held" and told[1].doing == "held before all_reduce #5 of default_pg at /train.py:9 in main"
    assert told[0].doing == "waits in all_reduce #5 of default_pg at /train.py:9 in main, for rank 1"


@pytest.mark.parametrize(
    ("elsewhere", "words"),
    [
        ({"operation": "barrier"}, "parted from ranks 0 and 2 (barrier at /train.py:7 in main)"),
        (
            {"iterations": (2, 1)},
            "parted from ranks 0 and 2 at /train.py:7 in main (iterations of the loop since the last call: 2 here, 1 there)",
        ),
        ({}, "parted from ranks 0 and 2 at /train.py:7 in main (here: line 9)"),
        (
            {"exchanged": 4},
            "parted from ranks 0 and 2 at /train.py:7 in main (here: line 9, in the other order than at #4 (DDP309))",
        ),
    ],
)
def test_a_rank_that_is_held_where_it_parted_says_from_whom(elsewhere, words):
    here, there = (Caller(file="/train.py", line=line, function="main") for line in (9, 7))
    peers = tuple(Elsewhere(rank=one, here=here, place=there, **elsewhere) for one in (0, 2))
    held = rank(1, CallState.HELD)
    parted = RanksPart(call=held.calls[-1].number, seq=5, peers=peers)
    before = RanksPart(call=0, peers=(Elsewhere(rank=3, operation="gather"),))
    taken = Recording(3, {1: replace(held, history=(before, parted))})
    assert status(taken)[0].doing == f"held before all_reduce #5 of default_pg at /train.py:9 in main: {words}"


def test_all_are_held():
    taken = Recording(3, {number: rank(number, CallState.HELD) for number in range(3)})
    assert not diagnose(taken, 1.0).errors


def test_whoever_waits_for_one_that_has_ended_hangs_although_another_is_held():
    ended = replace(rank(2, CallState.COMPLETED, seq=4), ending=Ending("finished"))
    taken = Recording(3, {0: rank(0, CallState.WAITING), 1: rank(1, CallState.HELD), 2: ended})
    found = diagnose(taken, 1.0)
    assert found.errors and found.errors[0].culprits == (2,) and 1 not in found.errors[0].culprits


def test_the_last_checkpoint_is_a_column_where_a_rank_passed_one():
    taken = Recording(2, {0: rank(0, CallState.WAITING), 1: rank(1, CallState.WAITING)})
    assert table(status(taken)).head == ("rank", "state", "doing", "steps")
    passed = Checkpoint(name="Trainer\x1b ready", number=3, site=Site("/train.py", 41, "main"))
    told = status(Recording(2, {**taken.ranks, 1: replace(taken.ranks[1], history=(passed,))}))
    assert [one.checkpoint for one in told] == ["", "checkpoint 3 (Trainer� ready), line 41"]
    assert table(told).head[-1] == "passed last"
    assert [row[-1] for row in table(told).rows] == ["", "checkpoint 3 (Trainer� ready), line 41"]


def test_words():
    taken = Recording(
        3,
        {
            0: RankRecord(0),
            1: replace(rank(1, CallState.COMPLETED), process=Process("computing")),
            2: replace(rank(2, CallState.COMPLETED), ending=Ending("raised", 1, "KeyError", "'x'")),
        },
    )
    assert [one.state for one in status(taken)] == ["idle", "computing", "ended"]
    assert status(taken)[2].doing.startswith("KeyError: 'x'")
