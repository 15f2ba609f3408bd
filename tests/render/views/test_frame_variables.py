"""Variables of one function side by side, from recordings written by hand."""

from __future__ import annotations

import pytest

from ddpnb.recording.ending import Ending
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.stacks import Frame, Stack
from ddpnb.recording.verbs import Opened
from ddpnb.render.views.frame_variables import Row, opened, side_by_side


def recording(*ranks):
    return Recording(len(ranks), dict(enumerate(ranks)))


def stands(*frames):
    """Frames as (function, line, variables), outermost first; a library frame has None for its variables."""
    made = [Frame("/lib.py" if v is None else "/train.py", line, f, v is not None, v or {}) for f, line, v in frames]
    return lambda rank=0: RankRecord(rank, stacks=(Stack("MainThread", tuple(made), main=True),))


def test_what_differs_comes_first():
    ranks = [
        stands(("main", 1, {}), ("train", 7, {"lr": "0.1", "step": str(step)}), ("wait", 3, None))(step)
        for step in (57, 57, 58)
    ]
    found = side_by_side(recording(*ranks))
    assert found.function == "train" and [row.name for row in found.rows] == ["step", "lr"]
    assert dict(found.differing[0].values) == {0: "57", 1: "57", 2: "58"}


def test_the_function_in_which_most_ranks_are():
    inside = stands(("train", 7, {"x": "1"}), ("evaluate", 20, {"y": "2"}))()
    outside = stands(("train", 9, {"x": "1"}))()
    found = side_by_side(recording(inside, outside, outside))
    assert found.function == "train" and {rank: site.line for rank, site in found.sites.items()} == {0: 7, 1: 9, 2: 9}
    assert found.differing == () and not found.absent


def test_outwards():
    rank = stands(("main", 1, {"a": "1"}), ("train", 7, {"b": "1"}))()
    assert [side_by_side(recording(rank, rank), depth).function for depth in (0, 1, 2)] == ["train", "main", "main"]


def test_a_variable_that_is_not_set_everywhere_differs():
    found = side_by_side(recording(stands(("f", 1, {"x": "1"}))(), stands(("f", 1, {}))()))
    assert [row.name for row in found.differing] == ["x"]


def test_ranks_that_are_elsewhere():
    here = stands(("f", 1, {"x": "1"}))()
    away = stands(("g", 4, {}))()
    found = side_by_side(recording(here, here, away, RankRecord(3, ending=Ending("finished"))))
    assert found.absent == {2: "in g at /train.py:4", 3: "ended (finished)"}


def test_nobody_is_in_the_users_code():
    assert side_by_side(recording(RankRecord(0), RankRecord(1))) is None
    assert side_by_side(Recording(0, {})) is None


def test_parts_of_the_program_are_shown_where_they_differ_alone():
    ranks = [stands(("f", 1, {"loss": f"<function {name}>", "nn": "<module torch.nn>", "x": "1"}))() for name in "ab"]
    assert [row.name for row in side_by_side(recording(*ranks)).rows] == ["loss", "x"]


def test_what_is_inside_a_variable():
    here = stands(("f", 1, {"args": "<argparse.Namespace>", "n": "3", "text": "'<a>'", "none": "[]"}))()
    frames = side_by_side(recording(here, here, here))
    assert [row.name for row in frames.rows if row.opens] == ["args"]
    answers = {0: Opened(inside=((".lr", "0.1"), (".n", "1")), more=3), 1: Opened(inside=((".n", "1"), (".lr", "0.2")))}
    found = opened(frames, "args", answers)
    assert (found.path, found.more, found.absent) == ("args", 3, {2: "does not answer"})
    assert [(row.name, row.differs) for row in found.rows] == [(".lr", True), (".n", False)]


def test_an_answer_that_is_not_valid_is_no_answer():
    frames = side_by_side(recording(stands(("f", 1, {}))()))
    for answer in (Opened(), Opened(inside=(("a",), ())), Opened(error="no")):
        assert opened(frames, "x", {0: answer}).rows == ()


@pytest.mark.parametrize(
    ("text", "tensor"),
    [
        ("0 (a bool tensor)", True),
        ("-1e+06 (a float32 tensor of shape [1])", True),
        ("7 (an int64 tensor)", True),
        ("tensor[2] float32 cpu", True),
        ("'0 (a bool tensor)'", False),
        ("7", False),
    ],
)
def test_what_is_a_tensor_can_be_read(text, tensor):
    assert Row("x", {0: text, 1: text}, 2).is_tensor == tensor
