"""``ddpnb.bisect`` of functions: on ranks that run one after the other, and on those of a World, each probe with a new group."""

from __future__ import annotations

import time

import pytest

import ddpnb
from ddpnb.errors import UsageError
from tests.scripted import ScriptedWorld
from tests.victims import parts


@pytest.fixture(params=["scripted", pytest.param("live", marks=[pytest.mark.full, pytest.mark.world])])
def ranks(request):
    """A World, or a stand-in for one."""
    return ScriptedWorld(parts) if request.param == "scripted" else request.getfixturevalue("world")


def test_the_pair_of_components_that_hangs(ranks, capsys):
    bisection = ddpnb.bisect(parts.train, 3, world=ranks)
    assert bisection.minimal == [{"name": "load", "value": ""}, {"name": "evaluate", "value": ""}]
    assert bisection.finding is not None and bisection.finding["waiting"]
    assert len(bisection.trials) < 10
    hung = [trial.seconds for trial in bisection.trials if trial.answer == "bad"]
    assert hung and max(hung) < 10  # no time-out was waited for
    assert "It fails with load and evaluate together." in str(bisection)
    out = capsys.readouterr().out
    assert "probe 1 of about" in out and "with none of them: works" in out


@pytest.mark.world
def test_functions_that_hang_on_live_ranks(world):
    bisection = ddpnb.bisect([parts.load, parts.evaluate], world=world, quiet=True)
    assert [one["name"] for one in bisection.minimal] == ["load", "evaluate"]
    assert bisection.finding is not None and bisection.finding["waiting"] == [0]


def test_functions_in_order(ranks):
    bisection = ddpnb.bisect([parts.load, parts.log, parts.evaluate], world=ranks, quiet=True)
    assert [one["name"] for one in bisection.minimal] == ["load", "evaluate"]


@pytest.mark.full
@pytest.mark.world
def test_a_probe_that_kills_a_rank(world):
    before = world.pids()
    bisection = ddpnb.bisect([parts.dies], world=world, quiet=True)
    assert [one["name"] for one in bisection.minimal] == ["dies"]
    assert [trial.answer for trial in bisection.trials[:2]] == ["bad", "good"]  # the second on a rank that was replaced
    assert world.pids()[0] == before[0] and world.pids()[1] != before[1]


def test_step_by_step_with_undo(ranks):
    bisection = ddpnb.bisect(parts.train, 2, world=ranks, run=False, quiet=True)
    assert "0 probes done" in repr(bisection)
    first = bisection.step()
    assert first is not None and first.answer == "bad"
    second = bisection.search.next_probe()
    assert second is not None
    bisection.answer(second, "good")  # judged by a person
    assert bisection.undo().probe == second
    assert bisection.search.next_probe() == second
    began = time.monotonic()
    assert bisection.run().outcome == "found"
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("target", "more", "said"),
    [
        (time.sleep, {}, "no components"),
        ([time.sleep, time.sleep], {}, "named twice"),
        (parts.train, {"vary": ["amp"]}, "are for scripts"),
        ([], {}, "takes a script, a launch command or functions"),
        (3, {}, "takes a script, a launch command or functions"),
    ],
)
def test_what_makes_no_sense_is_refused(target, more, said):
    with pytest.raises(UsageError, match=said):
        ddpnb.bisect(target, world=ScriptedWorld(parts), **more)


def test_functions_need_a_world():
    with pytest.raises(UsageError, match="ranks of a World"):
        ddpnb.bisect(parts.train)
