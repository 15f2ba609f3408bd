"""The file in which the members of a group announce their calls."""

from __future__ import annotations

import os
import zlib

import pytest
import torch
import torch.distributed as dist

from ddpnb.errors import CollectiveMismatch
from ddpnb.recorder.collectives import groups
from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.files.boards import ROWS, Announcements
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.calls import Signature


def test_all_of_its_space_is_allocated(tmp_path):
    Announcements(str(tmp_path / "fence"), 4, 0)
    assert os.stat(tmp_path / "fence").st_blocks * 512 >= ROWS * 4 * 8


def test_whoever_comes_later_finds_what_was_announced(tmp_path):
    first, second = (Announcements(str(tmp_path / "fence"), 2, me) for me in range(2))
    assert first.announce(1, 5) == []
    assert second.announce(1, 6) == [0]
    assert Announcements(str(tmp_path / "fence"), 2, 1).announce(1, 7) == [0]


def test_calls_that_the_backend_refuses_on_all_ranks_are_no_mismatch(tmp_path):
    """One rank is ahead: what it calls next has the number that the other one's refused call has now."""
    ahead, behind = (Announcements(str(tmp_path / "fence"), 2, me) for me in range(2))
    for refused in (5, 6):
        assert ahead.announce(1, refused) == []
        ahead.withdraw(1)
    assert ahead.announce(1, 7) == []
    for refused in (5, 6):
        assert behind.announce(1, refused) == []
        behind.withdraw(1)
    assert behind.announce(1, 7) == []
    assert ahead.announce(2, 8) == [] and behind.announce(2, 9) == [0]


@pytest.mark.parametrize("seq", [1, 1 << 24, (1 << 32) + 3])
def test_after_a_refusal_of_one_rank_alone_the_next_number_is_compared(tmp_path, seq):
    one, other = (Announcements(str(tmp_path / "fence"), 2, me) for me in range(2))
    one.announce(seq, 5)
    one.withdraw(seq)
    assert one.announce(seq, 6) == [] and other.announce(seq, 6) == []
    assert one.announce(seq + 1, 7) == [] and other.announce(seq + 1, 8) == [0]


def test_a_call_that_was_not_made_withdraws_the_announcement_of_its_rank_alone(tmp_path):
    first, second = of_group(tmp_path, 2)
    assert first.announce(1, 5) == [] and second.announce(1, 6) == [0]
    second.withdraw(1)
    others = of_group(tmp_path, 2)
    assert others[0].announce(1, 5) == [] and others[1].announce(1, 6) == [0]


@pytest.mark.usefixtures("of_two")
def test_without_room_for_it_calls_go_on_uncompared(tmp_path, monkeypatch, capsys):
    """The whole door was taken away, and with it all that is known of the rank."""
    monkeypatch.setattr(groups, "board_path", lambda *_: str(tmp_path / "none" / "fence"))  # open() fails
    door = Door(BlackBox(str(tmp_path / "rank0.box"), 0), str(tmp_path))
    door.open()
    try:
        door.new_run(1, "raise")
        dist.all_reduce(torch.ones(2))
        reader = BoxReader(door.box.memory)
        assert [call.op for call in reader.calls()] == ["all_reduce"]
        assert [event.title for event in reader.events()] == ["no fence"]
    finally:
        door.close()
    said = capsys.readouterr().err
    assert "are not compared" in said and "failed and was disabled" not in said


# -- all_to_all: what each pair exchanges


def exchange(sent, expected, **splits):
    shapes = {"shapes": ((sent, 8),), "out_shapes": ((expected, 8),)}
    return Signature("all_to_all_single", dtypes=("float32",), agreed="all_to_all_single|float32", **shapes, **splits)


def of_group(tmp_path, size):
    return [Announcements(str(tmp_path / "fence"), size, me) for me in range(size)]


def test_uneven_sizes_that_fit_pass(tmp_path):
    """As experts exchange tokens: the same ranks, other sizes in every step."""
    first, second = of_group(tmp_path, 2)
    for seq in range(1, 100):
        more = seq % 3
        calls = (
            exchange(4 + more, 3, in_splits=(1, 3 + more), out_splits=(1, 2)),
            exchange(7, 8 + more, in_splits=(2, 5), out_splits=(3 + more, 5)),
        )
        order = ((first, 0), (second, 1)) if seq % 2 else ((second, 1), (first, 0))
        assert [one.announce(seq, 5, calls[me]) for one, me in order] == [[], []]


def test_whoever_comes_later_finds_sizes_that_do_not_fit(tmp_path):
    first, second, third = of_group(tmp_path, 3)
    assert first.announce(1, 5, exchange(6, 6)) == []
    assert second.announce(1, 5, exchange(6, 6)) == []
    assert third.announce(1, 5, exchange(9, 9)) == [0, 1]
    # What rank 0 sends to rank 1 and rank 1 expects from it differ; rank 2 fits both.
    assert first.announce(2, 5, exchange(6, 6, in_splits=(2, 2, 2), out_splits=(2, 2, 2))) == []
    assert third.announce(2, 5, exchange(6, 6)) == []
    assert second.announce(2, 5, exchange(6, 5, in_splits=(2, 2, 2), out_splits=(1, 2, 2))) == [0]


def test_sizes_of_another_call_are_not_compared(tmp_path):
    first, second = of_group(tmp_path, 2)
    assert first.announce(1, 5, exchange(4, 4)) == []
    first.withdraw(1)
    assert second.announce(1, 5, exchange(6, 6)) == []
    assert first.announce(17, 5, exchange(8, 8)) == []  # in the row of the first one
    assert second.announce(17, 5, exchange(8, 8)) == []
    assert first.announce(18, 5, exchange(7, 7)) == []  # nothing that can be divided among them: torch refuses it


@pytest.mark.usefixtures("of_two")
def test_an_all_to_all_of_sizes_that_do_not_fit_is_stopped(tmp_path):
    door = Door(BlackBox(str(tmp_path / "rank0.box"), 0), str(tmp_path))
    door.open()
    try:
        door.new_run(1, "raise")
        dist.all_to_all_single(torch.empty(4, 3), torch.ones(4, 3))
        (path,) = (path for path in tmp_path.glob("fence-1-*") if not path.name.endswith("_pairs"))
        Announcements(str(path), 2, 1).announce(2, zlib.crc32(b"all_to_all_single|torch.float32"), exchange(6, 6))
        with pytest.raises(CollectiveMismatch, match="sending .2, 2. and expecting .2, 2. elements"):
            dist.all_to_all_single(torch.empty(4), torch.ones(4))
        (_, call) = BoxReader(door.box.memory).calls()
        assert (call.signature.out_shapes, call.state.name) == (((4,),), "FENCED")
    finally:
        door.close()
