"""A search that reads recordings, which here are handwritten."""

from __future__ import annotations

import html
import json

import pytest

from ddpnb.control.locating import Loaded, ModulesBisection, RecordedBisection
from ddpnb.control.probing import Ran
from ddpnb.errors import UsageError
from tests.bisection.test_modules import of, rank
from tests.bisection.test_steps import drifting, thinned
from tests.rules.recordings import Rank, record

COARSE = thinned(drifting("updated", 6), lambda step: step % 4 == 0)
FINE = drifting("updated", 6)
EQUAL = drifting("updated", 99)


class Runs(Loaded):
    """Gives one recording after the other, and keeps what was asked for."""

    def __init__(self, *recordings):
        self._left, self.asked = list(recordings), []

    def run(self, trying):
        self.asked.append(dict(trying.environment))
        recording = self._left.pop(0)
        return Loaded(recording).run(trying) if recording is not None else Ran(reason="no such device", ran=False)


def test_a_second_run_looks_closer():
    runs = Runs(COARSE, FINE)
    bisection = RecordedBisection("steps", runs, ["train.py", "--lr", "1"], True)
    assert repr(bisection) == "0 runs done, at most 2 to go" and bisection.to_json()["outcome"] == "unfinished"
    first = bisection.step()
    assert (first.probe.at, first.answer, bisection.left, bisection.result) == (8, "bad", 1, None)
    assert bisection.run().first_bad == 6
    assert runs.asked == [{}, {"DDPNB_LOOKS": "4..8"}]
    assert [trial.probe.at for trial in bisection.trials] == [8, 6] and bisection.step() is None
    assert repr(bisection).splitlines()[-1] == "ddpnb run train.py --lr 1"
    result = json.loads(json.dumps(bisection.to_json()))
    assert (result["schema"], result["kind"], result["first_bad"], result["last_good"]) == (1, "range", 6, 5)
    assert (result["pair"], result["recorded"]["sides"], len(result["probes"])) == ([0, 2], [[0, 1, 3], [2]], 2)
    assert result["finding"]["code"].startswith("DDP4") and result["said"][0].endswith("fc.weight.")


def test_the_last_run_can_be_forgotten():
    bisection = RecordedBisection("steps", Runs(COARSE, FINE, FINE))
    bisection.run()
    bisection.undo()
    assert (bisection.left, len(bisection.trials), bisection.located.looks) == (1, 1, (4, 8))
    assert bisection.run().first_bad == 6
    bisection.undo()
    bisection.undo()
    assert bisection.located is None and bisection.left == 1


def test_a_loaded_recording_says_what_it_lacks():
    bisection = RecordedBisection("steps", Loaded(COARSE), once=True)
    assert bisection.run().outcome == "undecided" and bisection.result.candidates == (5, 6, 7, 8)
    assert "Undecided: it is one of the optimizer steps 5 to 8." in str(bisection)
    assert "bisect the program, not its recording" in str(bisection) and bisection.typed() == ""


def test_a_failure_that_does_not_come_again():
    bisection = RecordedBisection("steps", Runs(COARSE, EQUAL))
    assert bisection.run().outcome == "undecided"
    assert "In the second run, which looked closer, nothing differed" in str(bisection)


def test_nothing_fails():
    bisection = RecordedBisection("steps", Runs(EQUAL))
    assert bisection.run().outcome == "nothing fails" and str(bisection).startswith("Nothing fails.\nThe replicas were")


def test_another_failure_is_said():
    hung = record(Rank(0, 2).wraps().trains(2).waits("all_reduce"), Rank(1, 2).wraps().trains(2).finishes())
    bisection = RecordedBisection("steps", Runs(hung))
    assert bisection.run().outcome == "nothing fails"
    assert "Nothing fails." not in str(bisection) and "The run fails: " in str(bisection)


def test_what_was_not_recorded_is_said():
    bisection = RecordedBisection("steps", Runs(record(Rank(0, 2), Rank(1, 2))))
    assert bisection.run().outcome == "undecided" and bisection.trials[0].answer == "skip"
    assert str(bisection).startswith("No digests of two ranks can be compared")


def test_a_program_that_cannot_run():
    with pytest.raises(UsageError, match="no such device"):
        RecordedBisection("steps", Runs(None)).step()


def test_modules_need_a_run_with_one_rank():
    runs = Runs(of(rank(0, 5.0, o2=99.0), rank(1, 6.0)), of(rank(0, 5.0, world=1)))
    bisection = ModulesBisection(runs, ["train.py"], True)
    assert bisection.step().answer == "skip" and (bisection.left, bisection.result) == (1, None)
    assert bisection.run().first_bad == "2 (Linear)"
    assert [one["DDPNB_MODULES"] for one in runs.asked] == ["1", "1"] and runs.asked[1]["OMP_NUM_THREADS"]
    bisection.undo()
    assert bisection.left == 1


def test_a_command_has_no_run_with_one_rank():
    runs = Runs(of(rank(0, 5.0), rank(1, 6.0)))
    bisection = ModulesBisection(runs, ["torchrun", "train.py"], False, reference=False)
    assert bisection.run().outcome == "undecided" and "that is no cause" in str(bisection)


def test_equal_modules():
    bisection = ModulesBisection(Runs(of(rank(0), rank(1)), of(rank(0, world=1))))
    assert bisection.run().outcome == "nothing fails" and "second run" not in str(bisection)


def test_a_person_does_not_answer():
    bisection = RecordedBisection("steps", Runs())
    with pytest.raises(UsageError, match="recording of a run answers"):
        bisection.answer(bisection.search.next_probe(), "good")


@pytest.mark.parametrize(
    "runs",
    [
        [COARSE, FINE],
        [COARSE, EQUAL],
        [EQUAL],
        [record(Rank(0, 2), Rank(1, 2))],
        [record(Rank(0, 2).wraps().trains(2).waits("all_reduce"), Rank(1, 2).wraps().trains(2).finishes())],
    ],
)
def test_it_is_shown_at_each_moment(runs):
    bisection = RecordedBisection("steps", Runs(*runs), ["train.py", "--lr", "1"], True)
    assert bisection.title == "train.py --lr 1"
    for _ in range(3):
        assert "<" in bisection._repr_html_() and repr(bisection) and bisection.to_json()["schema"] == 1
        bisection.step()
    assert bisection.result is not None
    assert bisection.conclusion().splitlines()[0] in html.unescape(bisection._repr_html_())
    assert RecordedBisection("steps", Loaded(FINE), once=True).title == "a recording"
