from __future__ import annotations

import pytest

import ddpnb
from ddpnb.errors import UsageError
from tests.reports.test_end_to_end import OLD_WATCHDOG


def test_a_log_is_shown_as_its_ranks_waited(tmp_path):
    (tmp_path / "<job>.log").write_text(OLD_WATCHDOG)
    panel = ddpnb.show(tmp_path / "<job>.log")
    assert "ranks 0, 2 and 3 occur" in panel.text
    assert "Rank 1 did not call the all_reduce #1812" in panel.text
    assert "What is not known" in panel.text
    files, *_ = panel.box.children
    assert "<job>" not in files.html and "&lt;job&gt;" in files.html
    board = next(part for part in panel.box.children if getattr(part, "label", "") == "rank board")
    assert board.text.count("all_reduce #1812") == 3


def test_a_path_at_which_nothing_can_be_read(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        ddpnb.show(str(tmp_path / "none.log"))
