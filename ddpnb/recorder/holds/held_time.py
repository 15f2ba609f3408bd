"""Records when threads of this rank were held, and holds that stopped nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.files.clock import now_ns
from ddpnb.recording.blackbox import MARK_HELD, MARK_RESUMED
from ddpnb.recording.events.runs import HoldMissed


class HeldClock:
    """Runs while a thread is held, or stopped by an IDE: the time is the user's, and no rank is slow because of it.

    Args:
        box: of this rank.
    """

    def __init__(self, box: BlackBox) -> None:
        self._box = box
        self._lock = threading.Lock()
        self._threads = self._since_ns = 0

    def begin(self) -> None:
        """One more thread is held: the one that calls this."""
        self._box.mark(MARK_HELD)
        with self._lock:
            self._threads += 1
            if self._threads == 1:
                self._since_ns = now_ns()

    def end(self) -> None:
        """One thread fewer is."""
        self._box.mark(MARK_RESUMED)
        with self._lock:
            self._threads = max(0, self._threads - 1)
            if not self._threads and self._since_ns:
                self._box.held_ns += now_ns() - self._since_ns
                self._since_ns = 0

    def missed(self, holds: Iterable[tuple[str, str]]) -> None:
        """Record holds that stopped nobody in the run, and why."""
        for hold, why in holds:
            self._box.emit(HoldMissed(hold=hold[:500], why=why[:500]))
