"""Signals that end a command: handled once, never lost, and deferred while ranks are being stopped.

Python drops an exception that a signal handler raises inside a weak reference's callback or a destructor, and an
import runs many of these; a bare ``except`` in a library drops it as well. A signal at such a moment would be lost
and the command would continue: the exception is raised again until the command has begun to stop.
"""

# pyright: standard
from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # as torchrun
_OTHERS = (signal.SIGUSR1, signal.SIGUSR2)  # that mean something to a program, and nothing to a command of ours
_AGAIN_S = 0.25  # after which an exception that did not arrive is raised again
_SOON_S = 0.001  # a timer of the caller that was due meanwhile
_Handlers = dict[signal.Signals, Any]


class _Ending:
    """The handler of these signals: the first one counts, later ones are ignored or passed on."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.first_ns = 0
        self.pass_on: Callable[[int], None] | None = None
        self.noticed = False
        self.paused = False
        self._alarm: _Alarm | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGALRM:
            if self.first is not None:
                if self.pass_on is not None:
                    self.pass_on(number)
                return
            self.first, self.first_ns = number, time.monotonic_ns()
        if self.first is None or self.noticed or self.paused:
            return
        if self._alarm is None:
            self._alarm = _Alarm(self)
        self._alarm.set(_AGAIN_S)
        if self.first == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self.first)

    @property
    def pending(self) -> bool:
        """Whether a signal arrived and the command has not begun to stop."""
        return self.first is not None and not self.noticed

    def raises_again(self, error: BaseException | None) -> bool:
        """Whether Python has dropped an exception of ours: it is raised again, so nothing needs to be printed."""
        return self.pending and self._alarm is not None and isinstance(error, (KeyboardInterrupt, SystemExit))

    def notice(self) -> None:
        """The command stops: nothing is raised from now on."""
        self.noticed = True
        alarm, self._alarm = self._alarm, None
        if alarm is not None:
            alarm.give_back()


class _Alarm:
    """The process's timer, borrowed from its user (e.g. a test's time limit)."""

    def __init__(self, handler: _Ending) -> None:
        self._handler = signal.getsignal(signal.SIGALRM)
        self._began = time.monotonic()
        self._left, self._interval = signal.setitimer(signal.ITIMER_REAL, 0)
        if self._handler is not None:  # else it was not set from Python, and could not be given back
            signal.signal(signal.SIGALRM, handler)

    def set(self, seconds: float) -> None:
        if self._handler is not None:
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def give_back(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self._handler is not None:
            _restore({signal.SIGALRM: self._handler})
        if self._left:
            left = self._left - (time.monotonic() - self._began)
            signal.setitimer(signal.ITIMER_REAL, max(left, _SOON_S), self._interval)


_ending: _Ending | None = None


@contextmanager
def ending(*, for_good: bool = False) -> Iterator[None]:
    """Inside, Ctrl-C raises KeyboardInterrupt, SIGTERM, SIGHUP and SIGQUIT raise SystemExit, once.

    Signals that the caller's shell has had ignored stay so: of a job in the background, or under ``nohup``.

    Args:
        for_good: the process ends right after: once it was interrupted, no later signal disturbs that.
    """
    global _ending
    if threading.current_thread() is not threading.main_thread() or _ending is not None:
        yield
        return
    handler = _ending = _Ending()
    before: _Handlers = {}
    hook = sys.unraisablehook
    try:
        sys.unraisablehook = lambda dropped: None if handler.raises_again(dropped.exc_value) else hook(dropped)
        _replace(handler, before)
        yield
    finally:
        handler.notice()
        sys.unraisablehook = hook
        _ending = None
        ends = for_good and handler.first is not None
        _restore(dict.fromkeys(before, signal.SIG_IGN) if ends else before)


def notice() -> None:
    """Say that the command has begun to stop because of a signal."""
    if _ending is not None and _ending.first is not None:
        _ending.notice()


def received() -> tuple[int, int]:
    """The signal because of which the command ends, and when it came (of the monotonic clock); zeros: there was none."""
    return (_ending.first or 0, _ending.first_ns) if _ending is not None else (0, 0)


@contextmanager
def passed_on(send: Callable[[int], None]) -> Iterator[None]:
    """Inside, signals that do not end the command are given to ``send``: SIGUSR1, SIGUSR2, and all after the one that does.

    It is called between two steps of whatever the main thread does, and must not wait for a lock.
    """
    handler = _ending
    if handler is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before: _Handlers = {}
    try:
        handler.pass_on = send
        _replace(lambda number, _frame: send(number), before, _OTHERS)
        yield
    finally:
        handler.pass_on = None
        _restore(before)


@contextmanager
def put_off() -> Iterator[None]:
    """Inside, signals that end a command wait: what is begun here is finished first.

    A signal from before, whose exception was dropped on its way, is raised again afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    dropped = _ending if _ending is not None and _ending.pending and not _arrived(sys.exc_info()[1]) else None
    if dropped is None:
        notice()
    else:
        dropped.paused = True
    waiting: list[int] = []
    before: _Handlers = {}
    try:
        _replace(lambda number, _frame: waiting.append(number), before)
        yield
    finally:
        _restore(before)
        if dropped is not None:
            dropped.paused = False
            dropped(signal.SIGALRM, None)
        for number in waiting[:1]:
            _raise_again(number, before[signal.Signals(number)])


def _arrived(error: BaseException | None) -> bool:
    """Whether the exception of a signal is being handled, or led to the one that is."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _raise_again(number: int, handler: Any) -> None:
    if callable(handler):
        handler(number, sys._getframe())
    else:
        os.kill(os.getpid(), number)


def _replace(
    handler: Callable[[int, FrameType | None], None],
    before: _Handlers,
    signals: Sequence[signal.Signals] = _SIGNALS,
) -> None:
    """Set the handler of all these signals but those that are ignored; the handlers before are put into ``before``."""
    for number in signals:
        previous = signal.getsignal(number)
        if previous is signal.SIG_IGN or previous is None:  # None: it was not set from Python
            continue
        before[number] = previous
        signal.signal(number, handler)


def _restore(before: _Handlers) -> None:
    """Restore all these handlers; an exception that a signal raises meanwhile is raised at the end."""
    raised: BaseException | None = None
    for number, handler in before.items():
        for _ in range(3):  # the exception may come before the handler is set
            try:
                with suppress(ValueError, OSError):  # the interpreter is being shut down
                    signal.signal(number, handler)
                break
            except BaseException as error:
                raised = error
    if raised is not None:
        raise raised
