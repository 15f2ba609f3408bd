"""Logs of an earlier run in the folder of a new one are kept."""

from __future__ import annotations

import os
import tempfile

from ddpnb.ranks.observe import logs
from ddpnb.ranks.observe.logs import set_aside


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


def test_a_copy_that_cannot_be_finished_is_removed(tmp_path, monkeypatch):
    """A full disk."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "rank0.log").write_text("all of it")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "kept"))
    assert logs.keep([str(tmp_path / "rank0.log"), str(tmp_path / "rank1.log")]) == ""  # there is no second one
    assert os.listdir(tmp_path / "kept") == []
    folder = logs.keep([str(tmp_path / "rank0.log")])
    assert os.listdir(folder) == ["rank0.log"]
