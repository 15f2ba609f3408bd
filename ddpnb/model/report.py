"""What a Recording says of the logs and dumps that it was read from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its path, its format in words, and how many facts were read from it."""

    path: str
    format: str
    facts: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """Where a Recording comes from that nobody took live.

    Args:
        sources: the files.
        waited_s: for how long, at least, the ranks have waited in their calls: the time-out that ended the wait. 0: not
            known.
        complete: the ranks all of whose last calls are known (from a dump), so that a call which is not there was not made.
        reached: of ranks known from a log, by group key, the number of the last collective that it enqueued.
        messages: errors of a rank that is not known.
        unknown: what cannot be known from these files, with what to collect next.
    """

    sources: tuple[Source, ...] = ()
    waited_s: float = 0.0
    world_size_known: bool = True
    messages: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
