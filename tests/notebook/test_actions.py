"""What an action of a form says: each rank has its share of the answer."""

from __future__ import annotations

import pytest

from ddpnb.notebook.actions import Actions
from ddpnb.notebook.tasks import Tasks
from ddpnb.recording.verbs import Evaluated
from ddpnb.world.results import Evaluations
from tests.notebook.waiting import until_done


class Ranks:
    """Two ranks on which every expression has these values."""

    def __init__(self, *answers):
        self.answers = dict(enumerate(answers))

    def evaluate(self, expression):
        return Evaluations.of(expression, self.answers, self.answers)


@pytest.mark.parametrize(
    ("answers", "lines"),
    [
        (
            [Evaluated(error="ZeroDivisionError: division by zero")] * 2,
            ["0: (ZeroDivisionError: ", "1: (ZeroDivisionError: "],
        ),
        ([Evaluated(text="x" * 5000), Evaluated(text="[[1],\n [2]]")], ["0: xxx", "1: [[1],"]),
    ],
)
def test_the_values_of_all_ranks_are_said_below_the_expression(answers, lines):
    tasks = Tasks(lambda: None)
    Actions(Ranks(*answers), tasks, lambda: None).take("evaluate", {"expression": "1/0"}, "")
    until_done(tasks)
    said = tasks.answer("").said.split("\n")
    assert said[0] == "1/0:" and len("\n".join(said)) <= 2000
    assert [line for line, begins in zip(said[1:], lines, strict=False) if line.startswith(f"rank {begins}")] == said[
        1:3
    ]
