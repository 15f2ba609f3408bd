"""Signals that end a command: noticed once, never lost, and put off while ranks are being stopped.

Python drops an exception that a signal handler raises inside a weak reference's callback or a destructor, and an
import runs many of these; a bare ``except`` in a library drops it as well. A signal at such a moment would be lost
and the command would go on: the exception is raised again until the command has begun to stop.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S = 0.25  # after which an exception that did not arrive is raised again
_Handlers = dict[signal.Signals, Any]


class _Ending:
    """The handler of all three signals: the first one counts, those after it are what impatient people send."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.noticed = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGALRM:
            if self.first is not None:
                return
            self.first = number
        if self.first is None or self.noticed:
            return
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        if self.first == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self.first)

    def notice(self) -> None:
        """The command stops: nothing is raised any more."""
        self.noticed = True
        signal.setitimer(signal.ITIMER_REAL, 0)


_ending: _Ending | None = None


@contextmanager
def ending(*, for_good: bool = False) -> Iterator[None]:
    """Inside, Ctrl-C raises KeyboardInterrupt, SIGTERM and SIGHUP raise SystemExit, once.

    Signals that the caller's shell has had ignored stay so: of a job in the background, or under ``nohup``.

    Args:
        for_good: the process ends right after: once it was interrupted, no later signal disturbs that.
    """
    global _ending
    if threading.current_thread() is not threading.main_thread() or _ending is not None:
        yield
        return
    handler = _ending = _Ending()
    before = _replaced(handler, (*_SIGNALS, signal.SIGALRM))
    try:
        yield
    finally:
        handler.notice()
        _ending = None
        ends = for_good and handler.first is not None
        _restore(dict.fromkeys(before, signal.SIG_IGN) if ends else before)


def notice() -> None:
    """Say that the command has begun to stop because of a signal."""
    if _ending is not None and _ending.first is not None:
        _ending.notice()


@contextmanager
def put_off() -> Iterator[None]:
    """Inside, signals that end a command wait: what is begun here is finished first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    notice()
    waiting: list[int] = []
    before = _replaced(lambda number, _frame: waiting.append(number), _SIGNALS)
    try:
        yield
    finally:
        _restore(before)
        for number in waiting[:1]:
            _raise_again(number, before[signal.Signals(number)])


def _raise_again(number: int, handler: Any) -> None:
    if callable(handler):
        handler(number, sys._getframe())
    else:
        os.kill(os.getpid(), number)


def _replaced(handler: Callable[[int, FrameType | None], None], numbers: tuple[signal.Signals, ...]) -> _Handlers:
    """Set the handler of these signals, but of those that are ignored; returns the handlers before."""
    before: _Handlers = {}
    for number in numbers:
        previous = signal.getsignal(number)
        if previous is signal.SIG_IGN or previous is None:  # None: it was not set from Python
            continue
        before[number] = previous
        signal.signal(number, handler)
    return before


def _restore(before: _Handlers) -> None:
    for number, handler in before.items():
        with suppress(ValueError, OSError):  # the interpreter is being shut down
            signal.signal(number, handler)
