"""What a Recording says of the logs and dumps that it was read from."""

from __future__ import annotations

from dataclasses import dataclass

from ddpnb.recording.ending import Ending


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its path, what it is in words, and how many facts were read from it."""

    path: str
    format: str
    facts: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """Where a Recording comes from that ddpnb did not record.

    Args:
        sources: the files.
        waited_s: for how long, at least, ranks waited in their calls when the files were written: the time-out that ended
            the wait. 0: not known.
        world_size_known: whether a file says how many ranks the job has; else it is at least the highest rank that occurs.
        missing: the ranks that messages name as missing.
        observed: the keys of groups of which only the ranks that use them are known: they may have other members.
        messages: errors of ranks that are not known.
        endings: how processes ended, or what they raised, whose ranks are not known.
        unknown: what cannot be known from these files, with what to collect next.
    """

    sources: tuple[Source, ...] = ()
    waited_s: float = 0.0
    world_size_known: bool = True
    missing: tuple[int, ...] = ()
    observed: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    endings: tuple[Ending, ...] = ()
    unknown: tuple[str, ...] = ()
