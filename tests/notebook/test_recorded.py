from __future__ import annotations

import pytest

import ddpnb
from ddpnb.errors import UsageError
from ddpnb.notebook import recorded
from ddpnb.recording.recording import Recording
from tests.notebook.waiting import LONG_S, Overtaken, until_done
from tests.reports.reading import OLD_WATCHDOG
from tests.studies.reenactment import programs
from tests.studies.reenactment.programs import recording_of


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "<job>.log"
    path.write_text(OLD_WATCHDOG)
    return path


def press(panel, action, **values):
    """Press a button, and wait for the end of what it does."""
    panel._head.on_action(action, values)
    until_done(panel._tasks)


def test_an_answer_stays_when_it_comes_before_the_progress_is_drawn(log, monkeypatch):
    panel = ddpnb.show(log)
    show = Overtaken(panel._head.show, lambda html, _: "writing the script" in html)
    monkeypatch.setattr(panel._head, "show", show)
    monkeypatch.setattr(recorded.reenacting, "export", lambda *_: show.begun.wait(LONG_S) and 4)
    press(panel, "export", script="repro.py")
    assert "torchrun --nproc-per-node 4 repro.py" in panel.text and "writing the script" not in panel._head.html


def test_a_log_is_shown_as_its_ranks_waited(log):
    panel = ddpnb.show(log)
    assert "found ranks 0, 2 and 3" in panel.text
    assert "Probably rank 1 did not call the all_reduce #1812" in panel.text
    assert "What is not known" in panel.text
    head, *_ = panel.box.children
    assert "<job>" not in head.html and "&lt;job&gt;" in head.html
    board = next(part for part in panel.box.children if getattr(part, "label", "") == "rank board")
    assert board.text.count("all_reduce #1812") == 3


def test_it_is_exported_but_over_no_file_of_somebody_else(log, tmp_path):
    panel = ddpnb.show(log)
    press(panel, "export", script="repro.py")
    assert "torchrun --nproc-per-node 4 repro.py" in panel.text
    assert "job" in (tmp_path / "repro.py").read_text().splitlines()[2]
    press(panel, "export", script="repro.py")
    assert "Written: repro.py" in panel.text
    (tmp_path / "train.py").write_text("mine\n")
    press(panel, "export", script="train.py")
    assert "Give another name" in panel.text
    assert (tmp_path / "train.py").read_text() == "mine\n"
    press(panel, "export", script="no/such/folder/x.py")
    assert panel._tasks.bad


def test_it_is_saved_beside_what_is_there(log, tmp_path):
    panel = ddpnb.show(log)
    press(panel, "save")
    press(panel, "save")
    assert 'ddpnb.load("hang-2.ddpnb")' in panel.text
    again = ddpnb.show("hang-2.ddpnb")
    assert "Probably rank 1 did not call the all_reduce #1812" in again.text


def test_where_nothing_is_wrong_there_is_nothing_to_re_enact():
    panel = ddpnb.show(Recording(2, {}))
    assert "reenact" not in panel._head.html
    assert panel.files is None


@pytest.mark.full
@pytest.mark.world
def test_it_is_re_enacted_twice_and_ended(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    panel = ddpnb.show(recording_of(programs.never_called, 2))
    try:
        press(panel, "reenact")
        assert "2 live ranks give the finding of the recording, DDP301" in panel.text
        first = panel.reenactment.world
        assert first.status()[0].state == "waiting"
        assert "reenact.py:" in panel.text and "ddpnb-reenact-" not in panel.text
        press(panel, "reenact")
        second = panel.reenactment.world
        assert first.closed and not second.closed
        panel._added(recording_of(programs.crossed, 2))
        assert second.closed and panel.reenactment is None
        assert "live ranks give" not in panel.text and "DDP306" in panel.text
    finally:
        press(panel, "end")
    assert panel.reenactment is None and "live ranks are ended" in panel.text


def test_a_path_at_which_nothing_can_be_read(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        ddpnb.show(str(tmp_path / "none.log"))
