"""What is thrown into a coroutine, as by a time-out of asyncio.

Python reports it for the innermost one alone, while those that await it look suspended, and for each of them when the one that it awaits has
ended. Without an exception it reports them the other way round. So that both are the same way of a program, those that await are resumed first.
"""

from __future__ import annotations

import dis
from collections.abc import Container
from types import FrameType

_RESUME, _SEND = dis.opmap["RESUME"], dis.opmap.get("SEND", -1)
_BACK = 16  # bytes from where a coroutine awaits to the instruction that sends


def site_of_await(frame: FrameType) -> int:
    """Where a suspended coroutine sends to what it awaits; -1: it is none."""
    code, at = frame.f_code.co_code, frame.f_lasti
    if at < 0 or code[at] not in (_RESUME, dis.opmap["YIELD_VALUE"]):
        return -1
    return next((place for place in range(at, max(0, at - _BACK), -2) if code[place] == _SEND), -1)


class Awaiting:
    """By thread the coroutines that were resumed before Python says so, outermost first, and the one that runs: ``frames`` (IDs)."""

    def __init__(self) -> None:
        self.frames: dict[int, list[int]] = {}

    def resume(self, thread: int, frame: FrameType, codes: Container[int]) -> list[FrameType] | None:
        """Those of these codes (IDs) that await this frame, outermost first, which resume before it; None: it was resumed itself."""
        known = self.frames.get(thread, [])
        if id(frame) in known:
            del known[known.index(id(frame)) + 1 :]
            if len(known) == 1:
                del self.frames[thread]
            return None
        found: list[FrameType] = []
        above = frame.f_back
        while above is not None and site_of_await(above) >= 0:
            if id(above.f_code) in codes:
                found.insert(0, above)
            above = above.f_back
        if found:
            self.frames[thread] = [*map(id, found), id(frame)]
        return found

    def suspend(self, thread: int, frame: FrameType) -> int:
        """How many are suspended with this frame, and Python does not say so."""
        known = self.frames.get(thread, [])
        if not known or known[-1] != id(frame):
            return 0
        del self.frames[thread]
        return len(known) - 1
