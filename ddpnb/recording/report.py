"""What a Recording says of the logs and dumps that it was read from."""

from __future__ import annotations

from dataclasses import dataclass

from ddpnb.recording.ending import Ending

_IN_THE_END = 1_000_000_000


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log that says something: where it is, and its words.

    Args:
        path: the file.
        number: of the line, from 1.
        words: of the line, bounded, without control characters and without secrets.
        about: what it says: "wait" (a call that timed out), "progress" (how far a rank was), "end", "outside" (the job was ended
            from outside) or "message".
        ranks: of whom it speaks; empty: not known.
        why: of an end that is no cause: why not.
    """

    path: str
    number: int
    words: str
    about: str = ""
    ranks: tuple[int, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.number}" if self.number < _IN_THE_END else f"{self.path} (its end)"


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
        lines: of the logs, those that say something.
        outside: who ended the job, where no rank did: a sentence.
        excerpt: why these files are a part of what the ranks wrote, so that the absence of a rank says nothing; empty: they
            are not known to be one.
        unsure: ranks whose end is inferred: a log shows an exception, and nothing confirms that it ended the process; or the
            number of the rank comes from the name of a file.
        cut: whether a log ends within the line that was read last.
        statuses: the exit statuses of ranks whose end follows from another one.
        present: ranks that a file names, whatever it says of them.
        unordered: ranks that failed, of which the files do not show which was the first: their clocks are not known to agree.
        in_time: whether ``lines`` are in the order of time; else they are by file.
    """

    sources: tuple[Source, ...] = ()
    waited_s: float = 0.0
    world_size_known: bool = True
    missing: tuple[int, ...] = ()
    observed: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    endings: tuple[Ending, ...] = ()
    unknown: tuple[str, ...] = ()
    lines: tuple[LogLine, ...] = ()
    outside: str = ""
    excerpt: str = ""
    unsure: tuple[int, ...] = ()
    cut: bool = False
    present: tuple[int, ...] = ()
    statuses: tuple[tuple[int, int], ...] = ()
    unordered: tuple[int, ...] = ()
    in_time: bool = True
