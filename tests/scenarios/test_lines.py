"""Ranks that are held at lines: the others wait, nobody calls that a hang, and the numbers stay as they are."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from ddpnb.errors import UsageError, WorldError

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 does not report lines"),
]

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(__file__)), "victims", "lines.py")
TOTAL = "total 601.0"
VALUE, SUM, LOOP = "lines.py:21", "lines.py:25", 20


def until(so):
    deadline = time.monotonic() + 240
    while not so() and time.monotonic() < deadline:
        time.sleep(0.05)


def line(status, rank):
    return status[rank].site.line


def test_one_rank_is_held_stepped_and_let_go_while_the_others_wait(world):
    holding = world.hold(VALUE, ranks=1, when="step == 2")
    run = world.run(SCRIPT, patience=0.7)
    status = holding.wait(60)
    assert (status.held, line(status, 1)) == ((1,), 21)
    assert status[1].doing.endswith("lines.py:21 in main: at lines.py:21 when step == 2")
    time.sleep(1.2)  # longer than a rank may stand anywhere else
    assert run.outcome == "running" and not run.diagnosis.errors
    assert world.evaluate("(step, rank)", ranks=1)[1].text == "(2, 1)"
    assert world.diff().differing["rank"] == {n: str(n) for n in range(4)}
    assert line(world.step(how="into", ranks=1), 1) == 12
    assert line(world.step(how="out", ranks=1), 1) == 22
    assert line(world.step(how="over", n=3, timeout=30), 1) == 26, "over the collective, which the others make too"
    assert line(world.step(how="iteration", timeout=30), 1) == LOOP
    status = world.step(timeout=30)
    assert status.held == (1,) and "before all_reduce #4" in status[1].doing
    holding.remove()
    world.resume()
    run.wait(60)
    assert run.outcome == "ok" and all(TOTAL in run.log(rank) for rank in range(4))
    held = [one.parts.held for one in run.account.ranks]
    assert held[1] > 1.2 and held[0] == held[2] == held[3] == 0
    assert run.account.stragglers[0].because.startswith("it was held")


def test_all_ranks_go_to_a_line_and_on(world):
    holding = world.hold("value_of()", count=2)
    run = world.run(SCRIPT)
    assert holding.wait(60).held == (0, 1, 2, 3)
    holding.remove()
    status = world.step(to=SUM, timeout=30)
    assert [line(status, rank) for rank in range(4)] == [25] * 4
    world.resume()
    run.wait(60)
    assert run.outcome == "ok" and TOTAL in run.log(0)


@pytest.mark.parametrize("given", [{}, {"line": "lines.py:24"}], ids=["at the next collective", "at a line"])
def test_a_value_that_differs_stops_where_that_is_known(world, given):
    holding = world.hold(differs="value", **given)
    run = world.run(SCRIPT)
    status = holding.wait(60)
    said = " ".join(status[rank].doing for rank in status.held)
    assert status.held and "value is" in said and "31" in said and "30" in said
    assert set(world.evaluate("step", ranks=status.held).values_by_rank.values()) == {3}
    holding.remove()
    world.resume()
    run.wait(60)
    assert run.outcome == "ok" and TOTAL in run.log(0)


def test_an_exception_that_nothing_handles_is_held_with_its_frames(world):
    world.hold(exception=True)
    run = world.run(SCRIPT, "fail")
    until(lambda: world.status().held)
    assert world.status().held == (1,)
    assert world.evaluate("total", ranks=1)[1].text == "601.0"
    with pytest.raises(WorldError, match="exception"):
        world.step(how="over", ranks=1)
    world.resume()
    run.wait(60)
    assert run.outcome == "crash"


def test_a_release_frees_a_rank_at_a_line_and_a_killed_one_keeps_nobody(world):
    holding = world.hold(SUM, ranks=(1, 2))
    run = world.run(SCRIPT)
    assert holding.wait(60).held == (1, 2)
    assert world.release(30).ranks == (0, 1, 2, 3) and run.outcome == "released"
    holding = world.hold(SUM, ranks=(1, 2))
    run = world.run(SCRIPT)
    assert holding.wait(60).held == (1, 2)
    os.kill(world.pids()[1], signal.SIGKILL)
    until(lambda: world.status()[1].state == "ended")
    holding.remove()
    world.resume([0, 2, 3])
    run.wait(60)
    assert run.outcome == "crash" and run.diagnosis.findings[0].culprits == (1,)


def test_what_a_script_says_is_the_same_is_checked_with_the_next_collective(world):
    run = world.run(SCRIPT, "same", stream=None).wait(60)
    assert run.outcome == "crash"
    text = " ".join(run.log(rank) for rank in range(4))
    assert "ValuesDiffer: the value is 3" in text and "(ddpnb.same at lines.py:23)" in text
    assert "total" not in text


def test_places_without_code_are_refused_and_those_of_later_are_armed(world):
    with pytest.raises(UsageError, match=r"no code at line 4.\n  The nearest lines 3 and 5 have some"):
        world.hold(f"{SCRIPT}:4")
    with pytest.raises(UsageError, match="has no function nowhere"):
        world.hold(f"{SCRIPT}:nowhere()")
    with pytest.raises(UsageError, match="goes with a line|go with a line"):
        world.hold("all_reduce", line=VALUE)
    with pytest.raises(UsageError, match="how cannot be"):
        world.step(how="sideways")
    holding = world.hold("not_loaded_yet.py:3")
    assert "no rank has loaded a file of the name not_loaded_yet.py yet" in str(holding)
    holding.remove()
