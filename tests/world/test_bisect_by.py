"""``ddpnb.bisect(by=...)``: what the recording of a run says, on the ranks of a World and of a script."""

from __future__ import annotations

import pytest

import ddpnb
from ddpnb import world_probes
from ddpnb.errors import UsageError
from ddpnb.model.recording import Recording
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


@pytest.mark.full
@pytest.mark.world
def test_a_recording(world, tmp_path):
    run = world.run(apart.train, 5, 9, stream=None).wait(60)
    run.recording.save(tmp_path / "apart.ddpnb")
    bisection = ddpnb.bisect(ddpnb.load(tmp_path / "apart.ddpnb"), by="steps", quiet=True)
    assert (bisection.result.first_bad, bisection.result.last_good) == (5, 4)


@pytest.mark.world
def test_the_checkpoints_between_which_it_hangs(world):
    bisection = ddpnb.bisect(apart.leaves_early, world=world, by="checkpoints", quiet=True)
    result = bisection.to_json()
    assert (result["kind"], result["first_bad"], result["last_good"]) == ("range", "end", "reduced"), str(bisection)
    assert result["recorded"]["last_passed"] == dict.fromkeys("0123", "reduced")
    assert "passed checkpoint 2 (reduced) last" in str(bisection)


@pytest.mark.full
@pytest.mark.world
def test_the_checkpoints_between_which_replicas_part(world):
    bisection = ddpnb.bisect(apart.train, 5, 9, world=world, by="checkpoints", quiet=True)
    assert (bisection.result.last_good, bisection.result.first_bad) == ("two more #3", "two more #4"), str(bisection)
    assert len(bisection.trials) == 1 and bisection.pair == [0, 1]


SEPARATE = [["rank 0", "one rank alone"], ["rank 1"], ["rank 2"], ["rank 3"]]


@pytest.mark.world
@pytest.mark.parametrize(
    ("function", "module", "before", "sides"),
    [
        pytest.param(
            apart.scaled, "1 (Scaled)", "0 (Linear)", [["rank 0"], ["one rank alone"]], marks=pytest.mark.full
        ),
        pytest.param(apart.noisy, "1 (Noisy)", "0 (Linear)", SEPARATE, marks=pytest.mark.full),
        pytest.param(apart.sound, None, None, None, marks=pytest.mark.full),
    ],
)
def test_the_first_module_whose_output_differs(world, function, module, before, sides):
    bisection = ddpnb.bisect(function, world=world, by="modules", quiet=True)
    result = bisection.to_json()
    assert (result["first_bad"], result["last_good"]) == (module, before), str(bisection)
    assert result["recorded"].get("sides") == sides and len(result["probes"]) == 2
    assert result["outcome"] == ("found" if module else "nothing fails")


@pytest.fixture(params=["scripted", pytest.param("live", marks=[pytest.mark.full, pytest.mark.world])])
def ranks(request, monkeypatch):
    """A World, or a stand-in for one, which those that are launched are too."""
    if request.param == "live":
        return request.getfixturevalue("world")
    monkeypatch.setattr(world_probes, "launch", lambda size, **_: ScriptedWorld(apart, size))
    return ScriptedWorld(apart)


@pytest.mark.timeout(300)
def test_the_smallest_world_that_fails(ranks):
    bisection = ddpnb.bisect(apart.with_three, world=ranks, by="ranks", quiet=True)
    result = bisection.to_json()
    assert (result["kind"], result["first_bad"], result["last_good"]) == ("range", 3, 2), str(bisection)
    assert [trial.probe.at for trial in bisection.trials] == [4, 1, 2, 3, 3, 2]
    assert not ranks.closed and ranks.size == 4


@pytest.mark.parametrize(
    ("target", "more", "said"),
    [
        (apart.train, {"by": "days"}, "no search by='days'"),
        (apart.train, {"by": "steps", "repeat": 3}, "no other search"),
        (Recording(2, {}), {"by": "ranks"}, "of one world"),
        (SCRIPT, {"by": "ranks", "n": 1}, "no smaller world"),
        (["python", "train.py"], {"by": "ranks"}, "does not say how many ranks"),
        (SCRIPT, {"by": "steps", "vary": ["amp"]}, "no other search"),
    ],
)
def test_what_makes_no_sense_is_refused(target, more, said):
    with pytest.raises(UsageError, match=said):
        ddpnb.bisect(target, world=ScriptedWorld(apart), **more)


def test_functions_need_a_world():
    with pytest.raises(UsageError, match="ranks of a World"):
        ddpnb.bisect(apart.train, 1, 2, by="steps")
