from __future__ import annotations

import pytest

from ddpnb.messages.explained import Explained, Raised, blamed
from ddpnb.model.stacks import Frame


def says(code: str, **culprits: tuple[int, ...] | None) -> dict[int, Explained]:
    return {int(rank[1:]): Explained(code, "It.", culprits=whom) for rank, whom in culprits.items()}


@pytest.mark.parametrize(
    ("told", "world", "odd"),
    [
        (says("DDP403", r0=(1,), r1=(0,), r2=(1,)), 3, (1,)),
        (says("DDP403", r0=(1,), r1=(0,), r2=(0,)), 3, (0,)),
        (says("DDP403", r0=(1,), r1=(0,)), 2, (1,)),
        (says("DDP403", r0=(3,), r1=(3,), r2=(3,), r3=(0,)), 4, (3,)),
        (says("DDP403", r1=(0,)), 2, (0,)),
        # Sizes are compared with rank 0 alone.
        (says("DDP403", r2=(2,)), 3, (2,)),
        (says("DDP403", r1=(1,), r2=(2,)), 3, (0,)),
        (says("DDP403", r1=(1,), r2=(2,)), 4, (1, 2)),
        (says("DDP403", r1=(1,)), 2, (1,)),
        (says("DDP403", r1=None, r2=None), 3, None),
        (says("DDP401", r0=(0,), r2=(2,)), 3, (0, 2)),
        (says("DDP301", r0=(1, 3), r2=()), 4, (1, 3)),
        (says("DDP301", r0=(), r2=()), 4, ()),
        (says("DDP205", r0=None), 2, None),
        ({}, 2, None),
    ],
)
def test_whom_the_messages_of_several_ranks_blame(told, world, odd):
    assert blamed(told, world) == odd


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
