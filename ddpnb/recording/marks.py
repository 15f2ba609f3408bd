"""Marks: readings of a rank's clocks, from which its time account is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

MarkKind = Literal["begin", "backward", "step", "end", "held", "resumed"]
MARK_KINDS: tuple[MarkKind, ...] = ("begin", "backward", "step", "end", "held", "resumed")


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment at which a rank read its clocks: the run began or ended, after a backward pass or an optimizer step, and when
    a thread was held and when it continued (``recording.holds``).

    The clocks only grow, so a mark that is lost makes the account coarser, not wrong.
    """

    number: int
    kind: MarkKind
    at_ns: int
    thread: int = 0  # as in the calls
    thread_ns: int = 0  # CPU time of that thread
    cpu_ns: int = 0  # CPU time of the process with all its threads, its children left out; 0: not read
    data_ns: int = 0  # in this run so far, time of the main thread inside iterators of data loaders
    steps: int = 0  # optimizer steps of the run so far
    threads: int = 0  # with which torch computes on the CPU; 0: not known


#: when holds began and ended, in nanoseconds
Stretch = tuple[int, int]


@dataclass
class HeldTime:
    """When threads of a rank were held, from its marks in their order.

    ``since``: when the hold began that has not ended; 0: no thread is held.

    Example:
        >>> HeldTime().take([Mark(0, "held", 5, thread=1), Mark(1, "resumed", 9, thread=1)])
        [(5, 9)]
    """

    since: int = 0
    _held: set[int] = field(default_factory=set[int])  # threads

    def take(self, marks: Iterable[Mark]) -> list[Stretch]:
        """The holds that have ended; of several threads at once, from the first until the last continues."""
        found: list[Stretch] = []
        for mark in marks:
            if mark.kind == "held":
                self.since = self.since or mark.at_ns
                self._held.add(mark.thread)
            elif mark.kind in ("resumed", "end", "begin") and self._held:
                self._held = self._held - {mark.thread} if mark.kind == "resumed" else set()
                if not self._held:
                    found.append((self.since, max(self.since, mark.at_ns)))
                    self.since = 0
        return found
