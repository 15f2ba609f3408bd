"""Evaluate an expression in a user frame while the rank is held or hangs."""

from __future__ import annotations

import math
from _thread import get_ident
from typing import Any

from ddpnb.recorder.stacks.own_threads import own_thread
from ddpnb.recorder.stacks.user_frames import frames_of, is_user_frame, looked_at
from ddpnb.recorder.stacks.values import describe
from ddpnb.texts import shortened

MAX_TEXT = 4000
_BITS = 64  # bits of an integer that is sent as itself
#: by thread: the condition of a hold that it still evaluates, although it has taken too long
endless: dict[int, str] = {}


def _is_plain(value: Any) -> bool:
    """Whether the value itself can be sent, beside its text."""
    if type(value) is str:
        return len(value) <= MAX_TEXT
    if type(value) is float:
        return math.isfinite(value)  # JSON has no other
    return value is None or type(value) is bool or (type(value) is int and value.bit_length() <= _BITS)


def sentence(error: BaseException) -> str:
    """An exception as text, also if its own ``__str__`` fails."""
    try:
        text = str(error)[:500]
    except Exception as another:
        text = f"its __str__ raises {type(another).__name__}"
    return shortened(f"{type(error).__name__}: {text}", 500)


def names_in(frame: Any) -> dict[str, Any]:
    """The names of a frame in one namespace, so that a comprehension sees the locals too."""
    return {**frame.f_globals, **frame.f_locals}


def evaluate(expression: str, depth: int, timeout: float, namespace: dict[str, Any]) -> dict[str, Any]:
    """Evaluate in the ``depth``-th user frame of the main thread, or of one that is held, from the innermost; on an idle rank, in ``namespace``.

    It runs in its own thread: an expression that blocks on a device or a lock must not block the control channel.

    Returns:
        ``text`` (its repr, or a description of a tensor), ``value`` where it is plain, ``where``; or ``error``.
    """
    frames = [frame for frame in frames_of(looked_at()) if is_user_frame(frame)]
    where = ""
    names = namespace
    if frames:
        if depth >= len(frames):
            return {"error": f"there is no frame {depth}: the rank is in {len(frames)} frames of user code."}
        frame = frames[depth]
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        names = names_in(frame)
        del frame
    frames.clear()
    result: dict[str, Any] = {}

    def work() -> None:
        try:
            value = eval(compile(expression, "<expression>", "eval"), names)  # noqa: S307 (the user's own)
            plain = {"value": value} if _is_plain(value) else {}
            result.update(plain, text=describe(value, MAX_TEXT))
        except BaseException as error:
            result["error"] = sentence(error)

    thread = own_thread(work, f"ddpnb evaluation {get_ident()}")
    thread.start()
    thread.join(timeout)
    if thread.is_alive():
        return {"where": where, "error": f"no answer within {timeout:g} s; it continues in its own thread."}
    return {"where": where, **result}
