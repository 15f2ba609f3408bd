"""Exceptions that leave the user's program: nothing in it has handled them, and their traceback still has its frames."""

from __future__ import annotations

import os
import sys
import threading
from _thread import get_ident
from collections.abc import Callable, Sequence
from functools import partial
from types import CodeType, FrameType
from typing import Any

from ddpnb.errors import Released
from ddpnb.recorder.stacks.handlers import Class, may_be_cleared, may_handle, names_of
from ddpnb.recorder.stacks.user_frames import is_user_frame

# How a program, a generator or ddpnb ends something on purpose.
_MEANT = (SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, StopAsyncIteration, Released)
_MONITORING: Any = getattr(sys, "monitoring", None)  # Python 3.12 and later
_MOST, _CONTEXTS = 1000, 8
_RECORDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_RUNS = os.path.join(_RECORDER, "process", "script.py")  # runs the program in a World
_OF_THREADS = threading.Thread.run.__code__


class Uncaught:
    """Which exceptions nothing handles: where they are raised if that is known there, else where they leave the program.

    An exception that was shown once is not shown again, nor are those that are raised while it is handled.

    Args:
        stop: shows an exception, given the frame in which it is, and a remark.
        failed: takes what a callback raises.
        silent: not empty in a forked child.
    """

    def __init__(
        self,
        stop: Callable[[FrameType, BaseException, str], None],
        failed: Callable[[BaseException], None],
        silent: list[Any],
    ) -> None:
        self._stop, self._failed, self._silent = stop, failed, silent
        self._shown: dict[int, BaseException] = {}  # by thread, until it has left the program
        self._doubts: dict[int, tuple[int, str]] = {}  # by thread: the id of an exception, and what might handle it

    def end_of_run(self) -> None:
        """Forget what belongs to the run."""
        self._shown.clear()
        self._doubts.clear()

    def callbacks(self) -> dict[int, Callable[..., None]]:
        """What ``sys.monitoring`` calls at each exception."""
        events, frame_at, silent = _MONITORING.events, sys._getframe, self._silent

        def raises(_code: CodeType, offset: int, error: BaseException) -> None:
            try:
                frame = frame_at(1)
                if not silent and is_new(frame, error) and self.raised(frame, offset, error):
                    self._stop(frame, error, "")
            except BaseException as another:
                self._failed(another)

        def raises_again(_code: CodeType, offset: int, error: BaseException) -> None:
            try:
                frame = frame_at(1)
                if not silent and self.raised(frame, offset, error):
                    self._stop(frame, error, self.behind(error))
            except BaseException as another:
                self._failed(another)

        def unwinds(_code: CodeType, _offset: int, error: BaseException) -> None:
            try:
                frame = frame_at(1)
                if not silent and self.leaves(frame, error):
                    self._stop(frame, error, self.behind(error))
            except BaseException as another:
                self._failed(another)

        return {events.RAISE: raises, events.RERAISE: raises_again, events.PY_UNWIND: unwinds}

    def raised(self, frame: FrameType, offset: int, error: BaseException) -> bool:
        """Whether an exception that is being raised at this offset in the calling thread must be shown now."""
        ident = get_ident()
        if _follows(error, self._shown.get(ident)):
            return False
        ends, doubt = unhandled(frame, offset, error)
        if doubt:
            self._doubts[ident] = id(error), doubt
        if ends:
            self._shown[ident] = error
        return ends

    def leaves(self, frame: FrameType, error: BaseException) -> bool:
        """Whether an exception that leaves this frame leaves the program, and was not shown."""
        if not leaves_the_program(frame, error):
            return False
        return not _follows(error, self._shown.pop(get_ident(), None))

    def behind(self, error: BaseException) -> str:
        """Why an exception is shown only where it leaves the program."""
        number, doubt = self._doubts.pop(get_ident(), (0, ""))
        since = f", since {doubt} might have handled it" if number == id(error) else ""
        return f" (shown behind its finally and with blocks{since})"


def _follows(error: BaseException, shown: BaseException | None) -> bool:
    """Whether an exception is this one, or was raised while that was handled."""
    for _ in range(_CONTEXTS):
        if error is shown or error.__context__ is None or shown is None:
            break
        error = error.__context__
    return error is shown


def unhandled(frame: FrameType, offset: int, error: BaseException) -> tuple[bool, str]:
    """Whether an exception that is being raised in this frame of the calling thread will end the user's program.

    Args:
        frame: where it is.
        offset: of the instruction there: behind a ``with``, the frame itself says where it was raised at first.
        error: the exception.

    Returns:
        Whether nothing on the stack handles it; and if not, what may.
    """
    if isinstance(error, _MEANT):
        return False, ""
    users, one = 0, frame
    kind: Class = type(error)
    while one is not None and one.f_code.co_filename != _RUNS and one.f_code is not _OF_THREADS:
        doubt, kind = may_handle(one.f_code, one.f_lasti if one is not frame else offset, partial(names_of, one), kind)
        if doubt or may_be_cleared(one, error):
            return False, doubt
        users += is_user_frame(one)
        one = one.f_back
    ends = threading.current_thread() is threading.main_thread() or one is not None
    return bool(users and ends), ""


def is_new(frame: FrameType, error: BaseException) -> bool:
    """Whether an exception is raised in this frame, rather than by what this has called."""
    trace = error.__traceback__
    return trace is None or trace.tb_next is None or trace.tb_next.tb_frame.f_back is not frame


def leaves_the_program(frame: FrameType, error: BaseException) -> bool:
    """Whether this frame is the outermost of the user's in its thread, which an exception is about to leave.

    What a library has called in a thread of its own (an executor) may hand it over to another thread, which handles it.
    """
    if isinstance(error, _MEANT) or not is_user_frame(frame):
        return False
    outer = frame.f_back
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main and (outer is None or outer.f_code is not _OF_THREADS):
        return False
    while outer is not None and outer.f_code.co_filename != _RUNS:
        if is_user_frame(outer):
            return False
        outer = outer.f_back
    return True


def frames_left(frame: FrameType, error: BaseException) -> tuple[Sequence[FrameType], int, FrameType]:
    """The frames down to where an exception was raised, innermost first; the line of the innermost one of the user's, and that frame."""
    left: list[FrameType] = []
    line, inner = frame.f_lineno or 0, frame
    trace = error.__traceback__
    while trace is not None and len(left) < _MOST:
        left.append(trace.tb_frame)
        if is_user_frame(trace.tb_frame):
            line, inner = trace.tb_lineno, trace.tb_frame
        trace = trace.tb_next
    if not left or left[0] is not frame:
        left.insert(0, frame)
    outer, outside = frame.f_back, list[FrameType]()
    while outer is not None:
        outside.append(outer)
        outer = outer.f_back
    return [*reversed(left), *outside], line, inner
