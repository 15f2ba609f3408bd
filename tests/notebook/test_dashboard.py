"""A dashboard of a world that is closed."""

from __future__ import annotations

from types import SimpleNamespace

from ddpnb.notebook.dashboard import Dashboard
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording


def test_after_an_earlier_run_the_last_one_is_shown_again():
    last = SimpleNamespace(
        recording=Recording(1, {}), diagnosis=Diagnosis("ok"), number=2, what="train.py", outcome="ok"
    )
    said = []
    board = SimpleNamespace(
        world=SimpleNamespace(closed=True, last_run=last),
        _context=SimpleNamespace(shown=None),
        card=SimpleNamespace(show_diagnosis=lambda _, words: said.append(words)),
        timeline=SimpleNamespace(show=lambda *_: None),
        _show_board=lambda: None,
        _show_recording=lambda *_: None,
        _tasks=SimpleNamespace(draw=lambda: None),
    )
    Dashboard._show_run(board, None)
    assert board._context.shown is last and said[0].startswith("Run 2 (train.py), as it was")
