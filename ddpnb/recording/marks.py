"""Marks: readings of a rank's clocks, from which its time account is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MarkKind = Literal["begin", "backward", "step", "end"]
MARK_KINDS: tuple[MarkKind, ...] = ("begin", "backward", "step", "end")


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment at which a rank read its clocks: the run began or ended, or after a backward pass or an optimizer step.

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
