"""Locks of the package filelock, which a thread asks for again and again."""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

from ddpnb.recorder.stacks.locals import variables

_MODULE, _FUNCTION = "/filelock/_api.py", "acquire"
_DEPTH = 12  # frames at the inner end that are looked at


def polled_lock(thread: int | None) -> tuple[str, bool] | None:
    """The file whose lock a thread asks for, and whether it does so until it gets it; None: it asks for none."""
    frame: FrameType | None = sys._current_frames().get(thread or 0)
    for _ in range(_DEPTH):
        if frame is None:
            return None
        if frame.f_code.co_name == _FUNCTION and frame.f_code.co_filename.endswith(_MODULE):
            return _asked(frame)
        frame = frame.f_back
    return None


def _asked(frame: FrameType) -> tuple[str, bool] | None:
    known: dict[Any, Any] = dict(variables(frame))
    lock, timeout = known.get("self"), known.get("timeout")
    try:
        path = os.fspath(lock.lock_file)  # pyright: ignore[reportOptionalMemberAccess]
        expires = getattr(lock, "lifetime", None) is not None
    except Exception:  # another version
        return None
    endless = type(timeout) in (int, float) and timeout < 0 and not expires and known.get("cancel_check") is None  # pyright: ignore[reportOptionalOperand]
    return (path, endless) if type(path) is str else None
