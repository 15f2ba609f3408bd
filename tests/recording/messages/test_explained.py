from __future__ import annotations

import pytest

from ddpnb.recording.messages.explained import AS_RANK_0, Explained, Raised, blamed
from ddpnb.recording.stacks import Frame


def says(code: str, **culprits: tuple[int, ...] | None) -> dict[int, Explained]:
    return {int(rank[1:]): Explained(code, "It.", culprits=whom) for rank, whom in culprits.items()}


def holds(**held: dict[int, str]) -> dict[int, Explained]:
    return {int(rank[1:]): Explained("DDP403", "It.", holds=whom) for rank, whom in held.items()}


SIZE = {-1: "[3]", 0: AS_RANK_0}  # of a message that does not say which rank raised it


@pytest.mark.parametrize(
    ("told", "world", "odd"),
    [
        (says("DDP401", r0=(0,), r2=(2,)), 3, (0, 2)),
        (says("DDP301", r0=(1, 3), r2=()), 4, (1, 3)),
        (says("DDP301", r0=(), r2=()), 4, ()),
        (says("DDP205", r0=None), 2, None),
        ({}, 2, None),
    ],
)
def test_whom_the_messages_of_several_ranks_blame(told, world, odd):
    assert blamed(told, world) == (odd, ())


@pytest.mark.parametrize(
    ("told", "world", "passed", "culprits", "sides"),
    [
        # Numbers of parameters: of a rank, and of the first that differs from it.
        (holds(r0={0: "2", 1: "4"}, r1={1: "4", 0: "2"}, r2={2: "2", 1: "4"}), 3, (), (1,), ()),
        (holds(r0={0: "4", 1: "2"}, r1={1: "2", 0: "4"}, r2={2: "2", 0: "4"}), 3, (), (0,), ()),
        (holds(r0={0: "2", 1: "4"}, r1={1: "4", 0: "2"}), 2, (), None, ((0,), (1,))),
        (holds(r1={1: "4", 0: "2"}), 2, (), None, ((0,), (1,))),
        (holds(r1={1: "4", 0: "2"}), 0, (), None, ((0,), (1,))),
        (holds(r0={0: "2", 3: "4"}, r1={1: "2", 3: "4"}), 3, (), (3,), ()),
        (holds(r0={0: "2", 3: "4"}, r1={1: "2", 3: "4"}), 4, (), None, ((0, 1), (3,))),  # what rank 2 holds is not known
        (holds(r0={0: "2", 1: "4"}, r2={2: "6", 0: "2"}), 3, (), None, ((0,), (1,), (2,))),
        # Sizes: compared with those of rank 0 alone.
        (holds(r2={2: "[3]", 0: AS_RANK_0}), 3, (0, 1), (2,), ()),
        (holds(r2={2: "[3]", 0: AS_RANK_0}), 3, (), None, ((0,), (2,))),
        (holds(r1={1: "[3]", 0: AS_RANK_0}, r2={2: "[3]", 0: AS_RANK_0}), 3, (0,), (0,), ()),
        (holds(r1={1: "[3]", 0: AS_RANK_0}, r2={2: "[4]", 0: AS_RANK_0}), 3, (0,), None, ((0,), (1,), (2,))),
        (holds(r1=SIZE, r2=SIZE), 4, (0, 3), None, ((0, 3), (1, 2))),
        (holds(r1={1: "[3]", 0: AS_RANK_0}, r3={1: "[3]", 0: AS_RANK_0}), 4, (0, 2), None, ((0, 2), (1, 3))),  # of two groups
        (holds(r3={1: "[3]", 0: AS_RANK_0}), 0, (), None, ()),
    ],
)  # fmt: skip
def test_ranks_outside_of_a_known_majority_are_blamed_by_messages_that_compare(told, world, passed, culprits, sides):
    assert blamed(told, world, passed) == (culprits, sides)


def test_a_message_ends_where_the_frames_of_cpp_begin():
    text = "No such key\nException raised from get at Store.cpp:1 (most recent call first):\nframe #0: c10::Error"
    assert Raised.of(text, "torch.distributed.DistStoreError") == Raised("No such key", "DistStoreError")


def test_the_line_of_a_frame_is_quoted_or_read_from_the_source():
    frames = [Frame("a.py", 2, "f"), Frame("/lib/b.py", 1, "g", user=False)]
    raised = Raised.of("", frames=frames, sources={"a.py": "one\n  two\n"})
    assert raised.user_line == "two"
    assert Raised.of("", frames=frames, quoted={("a.py", 2): "quoted"}).user_line == "quoted"
    assert Raised.of("", frames=[Frame("a.py", 99, "f")], sources={"a.py": "one\n"}).user_line == ""
    assert Raised.of("").user_line == ""


def test_calls_are_those_behind_the_users_last_line():
    library = Frame("/lib/os.py", 1, "makedirs", user=False)
    assert Raised.of("", frames=[Frame("a.py", 1, "f"), library]).calls("makedirs")
    assert not Raised.of("", frames=[library, Frame("a.py", 1, "f")]).calls("makedirs")
