"""Exceptions that leave the user's program: nothing in it has handled them, and their traceback still has its frames."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from types import FrameType

from ddpnb.errors import Released
from ddpnb.recorder.stacks.user_frames import is_user_frame

# How a program, a generator or ddpnb ends something on purpose.
_MEANT = (SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, StopAsyncIteration, Released)
_MOST = 1000
_RUNS = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "process", "script.py"
)  # runs the program in a World
_OF_THREADS = threading.Thread.run.__code__


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
