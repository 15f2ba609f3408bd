"""Calls in flight: which Work belongs to which record, and when each completes."""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable
from functools import partial
from itertools import islice
from time import monotonic, sleep  # a script may replace those of the module
from typing import Any

from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.files.clock import now_ns
from ddpnb.recording import blackbox as layout
from ddpnb.recording.calls import CallState

_COMPLETED, _FAILED, _DROPPED = int(CallState.COMPLETED), int(CallState.FAILED), int(CallState.DROPPED)
_STATE_AT, _DONE_AT, _PROGRESS_AT = layout.CALL_STATE_AT, layout.CALL_DONE_AT, layout.PROGRESS_AT
_put_time = struct.Struct("<Q").pack_into
_get_time = struct.Struct("<Q").unpack_from


class Flight:
    """The calls of this process that were issued and are not known to be complete."""

    def __init__(self, box: BlackBox) -> None:
        self._box = box
        #: whether a Work is complete, as the backend says it; the program's own questions are seen (``recorder.collectives.waits``)
        self.asks: Callable[[Any], bool] = lambda work: work.is_completed()
        #: the future of a Work
        self.future_of: Callable[[Any], Any] = lambda work: work.get_future()
        #: of a Work that does not say that, whether it is over all the same
        self.has_ended: Callable[[Any], bool] = lambda _work: False
        # Work -> (record's place, number). Holding a Work holds its tensors, so a call that the
        # CPU waited for leaves at the end of the wait, and others as soon as they are complete.
        self.pending: dict[Any, tuple[int, int, bool]] = {}
        # A send or receive of gloo ends when its Work is dropped, and never says that it is complete
        # unless waited for: it is held only until the caller surely has it, then weakly.
        self.fresh: list[tuple[Any, tuple[int, int, bool]]] = []
        self.p2p: weakref.WeakKeyDictionary[Any, tuple[int, int, bool]] = weakref.WeakKeyDictionary()
        # By number: what says that a Work is gone. Not weakref.finalize, which says nothing once the process exits.
        self._until_gone: dict[int, weakref.ref[Any]] = {}

    def finish(self, entry: tuple[int, int, bool], state: int) -> None:
        """Record the state and end time of a call, unless recorded before or its record was reused."""
        at, number, _ = entry
        memory = self._box.memory
        if not self._box.silent and _get_time(memory, at)[0] == number + 1 and memory[at + _STATE_AT] < _COMPLETED:
            now = now_ns()
            memory[at + _STATE_AT] = state
            _put_time(memory, at + _DONE_AT, now)
            _put_time(memory, _PROGRESS_AT + 8, now)

    def loosen(self) -> None:
        """Drop the strong references to sends and receives: only their callers hold them."""
        while self.fresh:
            try:
                work, entry = self.fresh.pop()
            except IndexError:  # another thread took the last one
                return
            self.p2p[work] = entry
            self._until_gone[entry[1]] = weakref.ref(work, partial(self._gone, entry))

    def _gone(self, entry: tuple[int, int, bool], _reference: object) -> None:
        self._until_gone.pop(entry[1], None)
        self.finish(entry, _DROPPED)

    def poll(self, most: int = layout.CALLS) -> None:
        """Mark completed calls, oldest first; at most as many as the box holds.

        A short poll (at the door) stops at the first call that is still in flight.
        """
        self.loosen()
        for work in list(islice(self.pending, most)):  # at once: another thread may add a call
            if not self._has_left(work) and most <= 8:
                return

    def tidy(self) -> None:
        """Let go of the oldest calls that are complete, and so of their tensors, which the program may be done with."""
        for work in list(self.pending) if self.pending and not self._box.silent else ():
            if not self._has_left(work):
                return

    def _has_left(self, work: Any) -> bool:
        """Whether a call is complete: then nothing here holds it any more."""
        entry = self.pending.get(work)
        if entry is not None:
            if not self.asks(work) and not self.has_ended(work):
                return False
            self.completed(work, entry)
        return True

    def completed(self, work: Any, entry: tuple[int, int, bool]) -> None:
        """A call is complete."""
        self.pending.pop(work, None)
        self.finish(entry, _FAILED if entry[2] and _failed(work, self.future_of) else _COMPLETED)

    @property
    def outstanding(self) -> int:
        """Calls that were not waited for and are not known to be complete."""
        return len(self.pending)

    def drain(self, seconds: float) -> None:
        """Poll until no call is in flight: gloo wakes a waiting thread slightly before the call is marked complete."""
        deadline = monotonic() + seconds
        self.poll()
        while self.pending and monotonic() < deadline:
            sleep(0.005)
            self.poll()


def _failed(work: Any, future_of: Callable[[Any], Any]) -> bool:
    """Whether a work on the CPU that is over ended with an error: that counts as completed too.

    Torch has ``is_success()`` for it, which puts a warning among the user's lines.
    """
    try:
        future = future_of(work)
        if not future.done():
            return False
    except Exception:  # works of this backend have none
        return False
    try:
        future.value()
    except Exception:
        return True
    return False
