"""Release: interrupt ranks, and report which are idle again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ddpnb import arguments
from ddpnb.control.breakpoints import Breakpoints
from ddpnb.control.ranks import Ranks
from ddpnb.model import phrases
from ddpnb.processes import connections

RELEASE_S = 10.0  # time limit by default
_ANSWER_S = 0.5
_AGAIN_S = 0.15  # a rank that is still busy then is interrupted again: it may be in the next wait
_TICK_S = 0.004
_TRANSIT_S = 1.0  # that messages between the ranks may take to arrive before the connections are shut
_BOTH_WAYS_S = 2.0  # from then on writes are ended too


@dataclass(frozen=True, slots=True)
class Freed:
    """The result of a release: the ranks that are idle again, and why others are not."""

    ranks: tuple[int, ...] = ()
    left: dict[int, str] = field(default_factory=dict[int, str])
    seconds: float = 0.0

    def __str__(self) -> str:
        if not self.ranks and not self.left:
            return "nothing to release: no rank is in a run."
        told = (
            [
                f"{phrases.ranks(self.ranks, True)} {phrases.verb(self.ranks, 'is', 'are')} released ({self.seconds:.2f} s)."
            ]
            if self.ranks
            else []
        )
        told += [f"Rank {rank} is not released: {why}" for rank, why in self.left.items()]
        return "\n".join(told)

    __repr__ = __str__


class Releasing:
    """Releases ranks."""

    def __init__(self, ranks: Ranks, breakpoints: Breakpoints, name: str) -> None:
        self._ranks = ranks
        self._breakpoints = breakpoints
        self._name = name

    def release(self, timeout: float = RELEASE_S) -> Freed:
        """See ``World.release``."""
        arguments.seconds("timeout", timeout, least=0)
        shared = self._ranks

        def busy() -> list[int]:
            return [rank for rank in shared.busy() if shared.processes.alive(rank)]

        with shared.lock:
            shared.check_open()
            if not busy():
                return Freed()
            monitors = {shared.in_run[rank] for rank in shared.busy() if rank in shared.in_run}
            for monitor in monitors:
                monitor.settle(released=True)
            freed = _release(shared, busy, f"released by {self._name}.release()", timeout)
            for monitor in monitors:
                monitor.show_rest()
            if shared.startup is not None:
                shared.startup._cut()
            self._breakpoints.released(freed.left)
        return freed


def _release(ranks: Ranks, busy: Callable[[], list[int]], why: str, timeout: float) -> Freed:
    """Release the busy ranks, and wait until they are idle.

    Args:
        ranks: all; gloo waits on the connections between them.
        busy: returns the ranks that are still busy.
        why: text of the exception.
        timeout: seconds; the result names the ranks that are still busy then.

    Raises:
        WorldError: the controller has died or is stopped.
    """
    began = time.monotonic()
    processes, everybody = ranks.processes, ranks.alive()
    asked = waiting = busy()
    silent: set[int] = set()
    shut: set[int] = set()
    transit_ends = began + _TRANSIT_S
    while waiting and time.monotonic() - began < timeout:
        awake = [rank for rank in waiting if rank not in silent] or waiting
        # First all must know: no rank issues another call, and the first connection that is shut wakes both ends.
        heard = processes.ask(awake, {"verb": "releasing", "why": why}, _ANSWER_S)
        silent |= set(awake) - set(heard)
        between = connections.between([processes.pid(rank) for rank in everybody])
        while connections.in_transit(between) and time.monotonic() < transit_ends:
            time.sleep(_TICK_S)
        both_ways = time.monotonic() - began > _BOTH_WAYS_S
        contents: dict[int, dict[str, Any]] = {
            rank: {"verb": "release", "connections": between.get(processes.pid(rank), []), "both_ways": both_ways}
            for rank in heard
        }
        shut |= set(contents)
        processes.ask_each(contents, _ANSWER_S)
        again = time.monotonic() + _AGAIN_S
        while waiting and time.monotonic() < again:
            time.sleep(_TICK_S)
            waiting = busy()
        if waiting and set(waiting) <= silent:
            break
    processes.ask(sorted(shut | {*everybody} - silent), {"verb": "released"}, _ANSWER_S)
    if waiting:
        processes.check_connection()  # without it no rank has heard of this: that says nothing of them
    left = {rank: _why_not(ranks, rank, rank in silent) for rank in waiting}
    return Freed(tuple(rank for rank in asked if rank not in left), left, time.monotonic() - began)


def _why_not(ranks: Ranks, rank: int, silent: bool) -> str:
    if ranks.processes.stopped(rank):
        why = f"its process is stopped (kill -CONT {ranks.processes.pid(rank)})."
    else:
        why = "it is unresponsive." if silent else "it is still running; it may have caught the exception."
    return f"{why} {ranks.replaces(rank)}"
