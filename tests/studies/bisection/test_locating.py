"""A search that reads recordings, which here are handwritten."""

from __future__ import annotations

import html
import json

import pytest

from ddpnb.errors import UsageError
from ddpnb.rules.diagnose import diagnose
from ddpnb.studies.bisection.command import Request
from ddpnb.studies.bisection.failure import failures
from ddpnb.studies.bisection.locating import StepsBisection
from ddpnb.studies.bisection.probing import NOTHING, CommandProber, Ran
from tests.rules.recordings import Rank, record
from tests.studies.bisection.test_steps import drifting, thinned

COARSE = thinned(drifting("updated", 6), lambda step: step % 4 == 0)
FINE = drifting("updated", 6)
EQUAL = drifting("updated", 99)


class Runs(CommandProber):
    """Gives one recording after the other, and keeps what was asked for."""

    def __init__(self, *recordings):
        super().__init__(Request(("train.py", "--lr", "1")))
        self._left, self.asked = list(recordings), []

    def run(self, _probe, environment=NOTHING):
        self.asked.append(dict(environment))
        recording = self._left.pop(0)
        if recording is None:
            return Ran(reason="no such device", ran=False)
        return Ran(failures(diagnose(recording), 0, "/"), recording=recording)


def test_a_second_run_looks_closer():
    runs = Runs(COARSE, FINE)
    bisection = StepsBisection(runs)
    assert repr(bisection) == "0 runs done, at most 2 to go" and bisection.to_json()["outcome"] == "unfinished"
    first = bisection.step()
    assert (first.probe.at, first.answer, bisection.left, bisection.result) == (8, "bad", 1, None)
    assert bisection.run().first_bad == 6
    assert runs.asked == [{}, {"DDPNB_LOOKS": "4..8"}]
    assert [trial.probe.at for trial in bisection.trials] == [8, 6] and bisection.step() is None
    assert repr(bisection).splitlines()[-1] == "ddpnb run -n 2 --end-after-patience train.py --lr 1"
    result = json.loads(json.dumps(bisection.to_json()))
    assert (result["schema"], result["kind"], result["first_bad"], result["last_good"]) == (1, "range", 6, 5)
    assert (result["pair"], result["recorded"]["sides"], len(result["probes"])) == ([0, 2], [[0, 1, 3], [2]], 2)
    assert result["finding"]["code"].startswith("DDP4") and result["said"][0].endswith("fc.weight.")


def test_the_last_run_can_be_forgotten():
    bisection = StepsBisection(Runs(COARSE, FINE, FINE))
    bisection.run()
    bisection.undo()
    assert (bisection.left, len(bisection.trials), bisection.located.looks) == (1, 1, (4, 8))
    assert bisection.run().first_bad == 6
    bisection.undo()
    bisection.undo()
    assert bisection.located is None and bisection.left == 1


def test_several_steps_that_are_left_are_said():
    bisection = StepsBisection(Runs(COARSE, COARSE))
    assert bisection.run().outcome == "undecided" and bisection.result.candidates == (5, 6, 7, 8)
    assert "Undecided: it is one of the optimizer steps 5 to 8." in str(bisection)


def test_a_failure_that_does_not_come_again():
    bisection = StepsBisection(Runs(COARSE, EQUAL))
    assert bisection.run().outcome == "undecided"
    assert "In the second run, which looked closer, nothing differed" in str(bisection)


def test_nothing_fails():
    bisection = StepsBisection(Runs(EQUAL))
    assert bisection.run().outcome == "nothing fails" and str(bisection).startswith("Nothing fails.\nThe replicas were")


def test_another_failure_is_said():
    hung = record(Rank(0, 2).wraps().trains(2).waits("all_reduce"), Rank(1, 2).wraps().trains(2).finishes())
    bisection = StepsBisection(Runs(hung))
    assert bisection.run().outcome == "nothing fails"
    assert "Nothing fails." not in str(bisection) and "The run fails: " in str(bisection)


def test_what_was_not_recorded_is_said():
    bisection = StepsBisection(Runs(record(Rank(0, 2), Rank(1, 2))))
    assert bisection.run().outcome == "undecided" and bisection.trials[0].answer == "skip"
    assert str(bisection).startswith("No digests of two ranks can be compared")


def test_a_program_that_cannot_run():
    with pytest.raises(UsageError, match="no such device"):
        StepsBisection(Runs(None)).step()


def test_a_person_does_not_answer():
    bisection = StepsBisection(Runs())
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
    bisection = StepsBisection(Runs(*runs))
    assert bisection.title == "train.py --lr 1"
    for _ in range(3):
        assert "<" in bisection._repr_html_() and repr(bisection) and bisection.to_json()["schema"] == 1
        bisection.step()
    assert bisection.result is not None
    assert bisection.conclusion().splitlines()[0] in html.unescape(bisection._repr_html_())
