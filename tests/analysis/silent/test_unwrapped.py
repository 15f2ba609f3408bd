"""Replicas that a script keeps equal by itself: gradients that the optimizer takes too early."""

from __future__ import annotations

import pytest

from ddpnb.analysis.diagnosis import diagnose
from tests.analysis.recordings import Rank, line, record
from tests.analysis.training import NET

REDUCE, STEP, METRIC = line(7), line(9), line(11)
WEIGHT = "fc.weight"


def overlapped(rank, odd, shape=(4,), outstanding=1.0):
    """Averages while backward goes on, and waits for it after the optimizer has stepped."""
    rank.adopts(*NET)
    for _ in range(3):
        rank.backward(STEP).issues("all_reduce", REDUCE, shape=shape)
        rank.gradients(STEP, odd={WEIGHT: 7 + rank.rank} if odd else {}, outstanding=outstanding)
        rank.updated(STEP, odd={WEIGHT: 8 + rank.rank} if odd else {})
    return rank.finishes()


def findings(make, world=2):
    return diagnose(record(*(make(Rank(number, world)) for number in range(world)))).findings


def test_gradients_that_are_still_on_their_way():
    (found,) = findings(lambda r: overlapped(r, odd=True))
    assert (found.code, found.culprits, found.waiting) == ("DDP316", (0, 1), ())
    assert dict(found.where)[0] == STEP
    assert "optimizer.step()" in found.remedy


@pytest.mark.parametrize(
    "more",
    [{"odd": False}, {"odd": True, "shape": (1,)}, {"odd": True, "outstanding": 0.0}],
    ids=["they agree", "a metric is on its way", "all were waited for"],
)
def test_nothing_is_taken_too_early(more):
    assert not [one for one in findings(lambda r: overlapped(r, **more)) if one.code == "DDP316"]
