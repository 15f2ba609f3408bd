"""``ddpnb.bisect(by=...)``: what the recording of a run says, on the ranks of a World and of a script."""

from __future__ import annotations

import pytest

import ddpnb
from ddpnb.errors import UsageError
from tests.conftest import VICTIMS, marked_lines
from tests.scripted import ScriptedWorld
from tests.victims import apart

SCRIPT = VICTIMS / "apart.py"


@pytest.mark.world
def test_a_step_that_was_looked_at(world, capsys):
    bisection = ddpnb.bisect(apart.train, 5, 9, world=world, by="steps")
    result = bisection.to_json()
    assert (result["kind"], result["first_bad"], result["last_good"]) == ("range", 5, 4), str(bisection)
    assert (len(bisection.trials), result["finding"]["code"], result["pair"]) == (1, "DDP410", [0, 1])
    assert result["recorded"]["in"] == "update" and result["recorded"]["sides"] == [[0, 2, 3], [1]]
    assert {place["line"] for place in result["recorded"]["where"]} == marked_lines(SCRIPT, "culprit", "step")
    assert "The gradients just before it were equal." in str(bisection)
    assert "probe 1: optimizer step 5: fails" in capsys.readouterr().out


@pytest.mark.full
@pytest.mark.world
def test_a_step_that_only_a_second_run_looks_at(world):
    bisection = ddpnb.bisect(apart.train, 487, 600, world=world, by="steps", quiet=True, run=False)
    assert bisection.step().answer == "bad"
    if bisection.left:  # most probably: a fast look would see each step
        low, high = bisection.located.looks
        assert low < 487 <= high
        bisection.step()
    assert bisection.step() is None
    assert (bisection.result.first_bad, bisection.result.last_good) == (487, 486), str(bisection)
    if len(bisection.trials) == 2:
        bisection.undo()
        assert bisection.left == 1 and bisection.result is None


@pytest.mark.full
@pytest.mark.world
def test_a_script_and_its_recording(tmp_path):
    run = {"n": 2, "fork": True, "quiet": True}
    bisection = ddpnb.bisect(SCRIPT, 4, 6, by="steps", **run)
    assert bisection.result.first_bad == 4, str(bisection)
    assert bisection.typed().startswith("ddpnb run -n 2 ")
    assert ddpnb.bisect(SCRIPT, 99, 6, by="steps", **run).result.outcome == "nothing fails"


@pytest.mark.parametrize(
    ("target", "more", "said"),
    [
        (apart.train, {"by": "steps", "repeat": 3}, "no other search"),
        (SCRIPT, {"by": "ranks"}, "no search by='ranks'"),
        (SCRIPT, {"by": "steps", "vary": ["amp"]}, "no other search"),
    ],
)
def test_what_makes_no_sense_is_refused(target, more, said):
    with pytest.raises(UsageError, match=said):
        ddpnb.bisect(target, world=ScriptedWorld(apart), **more)


def test_functions_need_a_world():
    with pytest.raises(UsageError, match="ranks of a World"):
        ddpnb.bisect(apart.train, 1, 2, by="steps")
