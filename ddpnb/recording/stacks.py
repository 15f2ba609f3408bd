"""Stacks of threads, with the locals of the user's frames as bounded text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

from ddpnb.recording.calls import Site
from ddpnb.recording.names import UNDECODABLE, function_name, given_name

MAX_THREADS, MAX_FRAMES, MAX_LOCALS, MAX_UNSEEN = 64, 64, 40, 16
UNRECORDED_WORK = "a Work that is not recorded"  # of a call that did not pass the door, or of several that did together
NOT_SHOWN = "not shown"  # a variable that there was no time to describe
_TEXT, _PATH = 400, 4096  # characters
_OWN = re.compile(r"[/\\]ddpnb[/\\]recorder[/\\](?!(?:faults|inject)[/\\])[\w/\\]+\.py$|^<ddpnb ")


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. ``user`` is true for code that is neither a library nor ddpnb.

    ``unseen``: of which communication it is a part that does not pass the door: a group in Python, a library.
    """

    file: str
    line: int
    function: str
    user: bool = True
    locals: Mapping[str, str] = field(default_factory=dict[str, str])
    unseen: str = ""

    @property
    def site(self) -> Site:
        return Site(self.file, self.line, self.function)

    @property
    def own(self) -> bool:
        """Whether it is one of the recorder, in which a rank is held or waits, and not one of a fault."""
        return _OWN.search(self.file) is not None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Frame:
        return cls(
            str(value.get("file", "?"))[:_PATH],
            int(value.get("line", 0) or 0),
            function_name(value.get("function", "?")),
            bool(value.get("user", True)),
            _texts(value.get("locals")),
            given_name(value.get("unseen", "")),
        )


def _texts(value: Any) -> dict[str, str]:
    held = islice(dict[Any, Any](value or {}).items(), MAX_LOCALS)
    return {given_name(variable): str(text)[:_TEXT] for variable, text in held}


@dataclass(frozen=True, slots=True)
class Stack:
    """A thread's frames, outermost first.

    ``holds_lock``: seen from outside, it holds the GIL and does not compute: it waits in native code.
    """

    thread: str
    frames: tuple[Frame, ...]
    native_id: int = 0
    main: bool = False
    holds_lock: bool = False

    @property
    def user_frames(self) -> tuple[Frame, ...]:
        return tuple(frame for frame in self.frames if frame.user)

    @property
    def unseen(self) -> str:
        """The call of communication that does not pass the door, in which the thread is: ``allreduce of Managed (a group in Python)``."""
        call = None
        for frame in reversed(self.frames):
            if frame.unseen:
                call = frame
            elif call is not None and frame.user:
                break
        return f"{call.function.removeprefix('watched_')} of {call.unseen}" if call is not None else ""

    @property
    def innermost(self) -> Frame | None:
        return self.frames[-1] if self.frames else None

    @property
    def innermost_user(self) -> Frame | None:
        frames = self.user_frames
        return frames[-1] if frames else None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Stack:
        return cls(
            given_name(value.get("thread", "?")),
            tuple(Frame.from_json(frame) for frame in value.get("frames", ())[-MAX_FRAMES:]),
            int(value.get("native_id", 0) or 0),
            bool(value.get("main", False)),
        )


def unseen_in(value: Any) -> tuple[str, ...]:
    """What communicates without passing the door, in a rank's answer, which may be anything."""
    return tuple(given_name(name) for name in cast("list[Any]", value)[:MAX_UNSEEN]) if isinstance(value, list) else ()


def stacks_in(value: Any) -> tuple[Stack, ...]:
    """The valid stacks in a rank's answer, which may be anything."""
    found: list[Stack] = []
    for entry in cast("list[Any]", value)[:MAX_THREADS] if isinstance(value, list) else ():
        try:
            found.append(Stack.from_json(entry))
        except UNDECODABLE:
            continue
    return tuple(found)
