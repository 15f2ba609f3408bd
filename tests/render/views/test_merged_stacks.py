"""Stacks of all ranks merged into one tree: where paths part, ranks part."""

from __future__ import annotations

import pytest

from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.stacks import Frame, Stack
from ddpnb.render.views.merged_stacks import Branch, merge
from tests.rules.recordings import TORCH_FRAME, Rank, record

MAIN = Frame("/home/user/train.py", 90, "main")
STEP = Frame("/home/user/train.py", 40, "step")
EVAL = Frame("/home/user/train.py", 61, "evaluate")
KERNEL = Frame("/venv/lib/ipykernel/kernelapp.py", 700, "start", user=False)


def tree(*stacks):
    return merge(record(*(Rank(rank).has_stack(*frames) for rank, frames in enumerate(stacks))))


def shape(branches):
    return [(one.frame.function, one.ranks, shape(one.calls)) for one in branches]


def test_ranks_on_one_path_are_one_branch():
    assert shape(tree((MAIN, STEP), (MAIN, STEP))) == [("main", (0, 1), [("step", (0, 1), [])])]


def test_where_paths_part_ranks_part_and_most_ranks_come_first():
    found = tree((MAIN, EVAL), (MAIN, STEP, TORCH_FRAME), (MAIN, STEP, TORCH_FRAME))
    assert shape(found) == [
        ("main", (0, 1, 2), [("step", (1, 2), [("wrapper", (1, 2), [])]), ("evaluate", (0,), [])]),
    ]


def test_two_lines_of_one_function_are_two_branches():
    other = Frame(MAIN.file, MAIN.line + 1, MAIN.function)
    assert [one.ranks for one in tree((MAIN,), (other,), (MAIN,))] == [(0, 2), (1,)]


def test_one_that_stands_where_others_went_on_stays_on_the_branch():
    assert shape(tree((MAIN,), (MAIN, STEP))) == [("main", (0, 1), [("step", (1,), [])])]


def test_what_lies_around_the_users_code_is_left_out():
    assert shape(tree((KERNEL, KERNEL, MAIN, STEP))) == [("main", (0,), [("step", (0,), [])])]


def test_a_stack_without_the_users_code_is_shown_whole():
    assert shape(tree((KERNEL, TORCH_FRAME))) == [("start", (0,), [("wrapper", (0,), [])])]


def test_ranks_without_a_stack_are_left_out():
    assert merge(record(Rank(0), Rank(1).has_stack())) == ()
    assert merge(record(Rank(0), Rank(1).has_stack(MAIN))) == (Branch(MAIN, (1,)),)
    assert merge(Recording(0, {})) == ()


def test_only_main_threads_count():
    assert merge(record(Rank(0).has_stack(MAIN, thread=99))) == ()


@pytest.mark.parametrize("depth", [61, 100, 5000])
def test_of_a_deep_stack_the_innermost_frames_stay(depth):
    frames = [Frame("/t.py", number, "recurse") for number in range(depth)]
    recording = Recording(
        2,
        {
            rank: RankRecord(rank, stacks=(Stack("MainThread", (*frames, end), main=True),))
            for rank, end in enumerate((STEP, EVAL))
        },
    )
    (one,) = merge(recording)
    assert one.frame.line == 0 and one.ranks == (0, 1)
    length = 1
    while len(one.calls) == 1:
        (one,), length = one.calls, length + 1
    assert length < 60
    assert [end.frame.function for end in one.calls] == ["step", "evaluate"]


def test_a_thousand_ranks():
    found = tree(*((MAIN, EVAL if rank == 413 else STEP) for rank in range(1000)))
    assert [len(one.ranks) for one in found[0].calls] == [999, 1]
    assert found[0].calls[1].ranks == (413,)
