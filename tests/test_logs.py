"""Logs of an earlier run in the folder of a new one are kept."""

from __future__ import annotations

import os

from ddpnb.logs import set_aside


def test_logs_of_earlier_runs_are_numbered(tmp_path):
    for number in (0, 1):
        (tmp_path / f"rank{number}.log").write_text(f"first {number}")
    (tmp_path / "notes.txt").write_text("mine")
    set_aside(str(tmp_path))
    (tmp_path / "rank0.log").write_text("second 0")
    set_aside(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["notes.txt", "rank0.log.1", "rank0.log.2", "rank1.log.1"]
    assert (tmp_path / "rank0.log.1").read_text() == "first 0"
    assert (tmp_path / "rank0.log.2").read_text() == "second 0"


def test_empty_logs_are_not_kept(tmp_path):
    (tmp_path / "rank0.log").write_text("")
    set_aside(str(tmp_path))
    assert os.listdir(tmp_path) == ["rank0.log"]
