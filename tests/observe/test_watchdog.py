"""A run is over at the latest when the ranks have answered: where they wrote no ending, that is an error."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from ddpnb.observe.watchdog import Settling


class Ready:
    def __init__(self, error=None):
        self._error = error

    def ready(self):
        return True

    def successful(self):
        return self._error is None

    def exception(self):
        return self._error


@pytest.mark.parametrize(
    ("answer", "words"),
    [(Ready(), "rank 0 is idle again"), (Ready(OSError("disk")), "rank 0 could not begin .* disk")],
    ids=["returned", "failed"],
)
def test_an_answer_without_an_ending(answer, words):
    observer = SimpleNamespace(
        statuses=lambda: {0: None}, follow=lambda: None, look=lambda: {0: "computing"}, ending=lambda rank: None
    )
    settling = Settling(
        SimpleNamespace(connection="open"), observer, [0], {0: answer}, SimpleNamespace(pump=lambda: None),
        threading.Event(), patience=600, leave_after_crash=False,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match=words):
        settling.watch()
