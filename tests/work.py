"""How much work a function does, as a number that is the same on any machine: to see how it grows, without a clock."""

from __future__ import annotations

import cProfile
import sys
from collections.abc import Callable, Iterator
from typing import Any


class Counted(tuple[int, ...]):
    """Members of a group that count how often one of them is looked at, also by C code."""

    __slots__ = ()
    looked_at = 0

    def __iter__(self) -> Iterator[int]:
        Counted.looked_at += len(self)
        return super().__iter__()

    def __contains__(self, one: object) -> bool:
        Counted.looked_at += len(self)
        return super().__contains__(one)

    def __hash__(self) -> int:
        Counted.looked_at += len(self)
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Counted.looked_at += len(self)
        return super().__eq__(other)


def work(function: Callable[[], Any]) -> int:
    """The calls of functions, the turns of loops and the members looked at."""
    Counted.looked_at = 0
    return (_turns(function) if sys.version_info >= (3, 12) else _calls(function)) + Counted.looked_at


def _turns(function: Callable[[], Any]) -> int:
    """Python functions begun or resumed, and jumps: of each turn of a loop or a comprehension there is one."""
    monitoring, tool = sys.monitoring, 3
    seen = 0

    def count(*_: Any) -> None:
        nonlocal seen
        seen += 1

    events = (monitoring.events.PY_START, monitoring.events.PY_RESUME, monitoring.events.JUMP)
    monitoring.use_tool_id(tool, "work")
    try:
        for event in events:
            monitoring.register_callback(tool, event, count)
        monitoring.set_events(tool, sum(events))
        function()
    finally:
        monitoring.set_events(tool, 0)
        for event in events:
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)
    return seen


def _calls(function: Callable[[], Any]) -> int:
    profile = cProfile.Profile()
    profile.runcall(function)
    return sum(entry.callcount for entry in profile.getstats())
