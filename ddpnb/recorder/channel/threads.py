"""Stacks of this process's threads, read from inside.

Everything that leaves the rank is bounded.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from itertools import islice
from types import FrameType
from typing import Any

from ddpnb.recorder.collectives import unseen
from ddpnb.recorder.process import process_state, script
from ddpnb.recorder.stacks.locals import LOOK_S, describe_locals
from ddpnb.recorder.stacks.user_frames import frames_of, is_user_frame
from ddpnb.recorder.stacks.values import Allowance
from ddpnb.recording.names import one_line
from ddpnb.recording.stacks import MAX_FRAMES, MAX_THREADS

_VARIABLES = 0.75  # share of the time of a snapshot: the rest is for the frames

_LEADING = (script.__file__, process_state.__file__)  # to the user's script


def described(
    frames: Iterable[FrameType], with_locals: bool, *, values: bool = False, within: Allowance | None = None
) -> list[dict[str, Any]]:
    """What is reported of frames, which come innermost first, outermost first; those that lead to the user's script are left out.

    ``within``: what may be spent on variables; none are described when nothing is left.
    """
    entries: list[dict[str, Any]] = []
    inner = False
    for frame in islice(frames, MAX_FRAMES):
        code = frame.f_code
        if code.co_filename in _LEADING:
            break
        user = is_user_frame(frame)
        entry: dict[str, Any] = {
            "file": code.co_filename[:4096],
            "line": frame.f_lineno or 0,
            "function": code.co_name[:200],
            "user": user,
        }
        if part := unseen.part_of(frame, user=user, inner=inner):
            entry["unseen"] = part
        inner = inner or (user and not part)
        if user and with_locals:
            entry["locals"] = describe_locals(frame, values=values, within=within)
        entries.append(entry)
    return entries[::-1]


def stacks(with_locals: bool = True, *, values: bool = False) -> list[dict[str, Any]]:
    """All threads but the one that asks, the main thread first; ``values``: with the norms of tensors.

    All of it together takes ``LOOK_S`` of the processor at most: of thousands of threads the last are left out.
    """
    look = Allowance(LOOK_S)
    variables = Allowance(LOOK_S * _VARIABLES, look)
    # Not enumerate(): that takes a lock, and a class of threads may have properties of the user's.
    named = dict(threading._active)  # type: ignore[attr-defined]
    main = threading.main_thread().ident
    asking = threading.get_ident()
    order = sorted(sys._current_frames(), key=lambda ident: ident != main)
    result = []
    for ident in order[:MAX_THREADS]:
        if ident == asking:
            continue
        if result and look.spent:
            break
        result.append(
            {
                "thread": _name_of(named.get(ident), ident),
                "native_id": ident >> 6 & 0xFFFFFFFF,
                "main": ident == main,
                "frames": described(frames_of(ident, MAX_FRAMES), with_locals, values=values, within=variables),
            }
        )
    return result


def _name_of(thread: threading.Thread | None, ident: int) -> str:
    try:
        name = object.__getattribute__(thread, "_name")
    except AttributeError:  # not started by Python, or without Thread.__init__
        name = None
    return one_line(name[:80]) if type(name) is str else f"thread {ident}"
