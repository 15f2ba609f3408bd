"""The file in which the members of a group announce their calls."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist

from ddpnb.model.blackbox import BoxReader
from ddpnb.recorder import groups
from ddpnb.recorder.blackbox import BlackBox
from ddpnb.recorder.door import Door
from ddpnb.recorder.fence import ROWS, Announcements


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
