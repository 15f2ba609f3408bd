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
