"""Replicas that a script keeps equal by itself: gradients that the optimizer takes too early."""

from __future__ import annotations

import pytest

from tests.rules.recordings import Rank, Script, diagnose, line, record
from tests.rules.training import NET

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
    assert str(REDUCE) in found.summary
    assert "optimizer.step()" in found.remedy


@pytest.mark.parametrize(
    "more",
    [{"odd": False}, {"odd": True, "shape": (1,)}, {"odd": True, "outstanding": 0.0}],
    ids=["they agree", "a metric is on its way", "all were waited for"],
)
def test_nothing_is_taken_too_early(more):
    assert not [one for one in findings(lambda r: overlapped(r, **more)) if one.code == "DDP316"]


def test_what_the_source_shows_of_another_call_does_not_replace_what_was_recorded():
    """A metric is read before its wait(); the gradients that were on their way are what made the replicas differ."""
    script = Script("""
        def main():
            work = dist.all_reduce(metric, async_op=True)   # metric
            print(metric)
            work.wait()
            dist.all_reduce(p.grad, async_op=True)   # reduce
            optimizer.step()   # step
    """)

    def make(number):
        rank, at = Rank(number, 2).adopts(*NET), script.at("step")
        for turn in range(2):
            rank.calls("all_reduce", script.at("metric")).issues("all_reduce", script.at("reduce")).backward(at)
            rank.gradients(at, odd={WEIGHT: 90 + turn + number}, outstanding=1.0)
            rank.updated(at, odd={WEIGHT: 50 + turn + number})
        return rank.finishes()

    told = diagnose(record(make(0), make(1), script=script))
    (found,) = [one for one in told.findings if one.code == "DDP316"]
    assert (found.severity, told.outcome) == ("error", "divergence")
    assert found.summary.startswith("Optimizer step 1 runs while calls")


def test_a_call_whose_work_is_thrown_away_is_the_place():
    """The averages of the weights are still on their way: the line to change is the call, not the optimizer's step."""
    script = Script("""
        def main():
            dist.all_reduce(p.data, async_op=True)   # reduce
            optimizer.step()   # step
    """)

    def make(number):
        rank, at = Rank(number, 2).adopts(*NET), script.at("step")
        rank.issues("all_reduce", script.at("reduce")).backward(at)
        rank.gradients(at, odd={WEIGHT: 90 + number}, outstanding=1.0).updated(at, odd={WEIGHT: 50 + number})
        return rank.finishes()

    (found,) = diagnose(record(make(0), make(1), script=script)).findings
    assert (found.code, found.severity, found.culprits) == ("DDP316", "error", (0, 1))
    assert found.where == (
        *((rank, script.at("reduce")) for rank in (0, 1)),
        *((rank, script.at("step")) for rank in (0, 1)),
    )
    assert found.hint.line == script.line("reduce") and found.hint.reason.startswith("Nothing waits")
