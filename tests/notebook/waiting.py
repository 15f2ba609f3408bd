"""Waits for the actions of a panel, and draws in an order that only chance would give."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ddpnb.notebook.tasks import Tasks

LONG_S = 240.0
_OVERTAKEN_S = 0.5  # for another thread to draw meanwhile, where nothing keeps it from that


def until_done(tasks: Tasks) -> None:
    """Wait until nothing is in progress, and the last answer is drawn."""
    deadline = time.monotonic() + LONG_S
    while tasks.busy:
        assert time.monotonic() < deadline, tasks.busy
        time.sleep(0.01)
    with tasks.drawing:
        pass


class Overtaken:
    """Draws, with a thread that is interrupted just before it draws progress until another one has drawn.

    ``begun``: set once it is.

    Args:
        draw: the function that draws, such as ``Fragment.show``.
        progress: whether its arguments show an action in progress.
    """

    def __init__(self, draw: Callable[..., Any], progress: Callable[..., bool]) -> None:
        self._draw, self._progress = draw, progress
        self.begun, self._drawn = threading.Event(), threading.Event()

    def __call__(self, *args: Any) -> None:
        if self._progress(*args):
            self.begun.set()
            self._drawn.wait(_OVERTAKEN_S)
            self._draw(*args)
        else:
            self._draw(*args)
            self._drawn.set()
