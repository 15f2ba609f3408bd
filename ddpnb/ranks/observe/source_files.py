"""The text of the user's files that the ranks of a run are in, called from, or executed lines of."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping

from ddpnb.ranks import source_text
from ddpnb.ranks.source_text import SourceText
from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.recording import RankRecord

_EXECUTED = 128  # files that ranks only executed lines of
_EXECUTED_LIMIT = 4 << 20  # characters of these together


class SourceFiles:
    """Reads each file once, when it first occurs.

    ``edited`` are the files that were written after the run began and before they were read.

    Args:
        read: gives the text of a file that a rank has named; None if it is not known at this moment.
    """

    def __init__(self, read: Callable[[int, str], SourceText | None] = lambda _, path: source_text.read(path)) -> None:
        self._ask = read
        self._texts: dict[str, str] = {}
        self._executed: dict[str, int] = {}  # characters of files that ranks only executed lines of
        self._epoch = time.time() - time.monotonic()  # as of now: the wall clock may be changed later
        self.edited: list[str] = []

    def of(self, records: Mapping[int, RankRecord]) -> dict[str, str]:
        """The texts of these and of earlier records."""
        wanted = {path: rank for rank, record in records.items() for path in _named(record)}
        began = self._epoch + _began(records)
        for path in wanted.keys() - self._texts.keys():
            self._read(wanted[path], path, began)
        executed = {
            path: rank for rank, record in records.items() for path in _executed(record) if path not in self._texts
        }
        for path in sorted(executed, key=lambda path: (_distance(path, wanted), path)):
            if len(self._executed) >= _EXECUTED or sum(self._executed.values()) >= _EXECUTED_LIMIT:
                break
            self._executed[path] = self._read(executed[path], path, began)
        return dict(self._texts)

    def _read(self, rank: int, path: str, began: float) -> int:
        """Read a file that a rank has named; returns how long it is."""
        found = self._ask(rank, path)
        if found is None:
            return 0
        self._texts[path], changed = found
        if changed > began:
            self.edited.append(path)
        return len(self._texts[path])


def _named(record: RankRecord) -> Iterator[str]:
    """The files in which a rank is, or from which it has called."""
    yield from (frame.file for stack in record.stacks if stack.main for frame in stack.user_frames)
    yield from (call.site.file for call in record.calls[-4:])
    yield from (sample.site.file for sample in record.samples[-16:])
    yield from (event.site.file for event in record.history if event.site != NO_SITE)
    if record.ending is not None:
        yield from (frame.file for frame in record.ending.frames if frame.user)


def _executed(record: RankRecord) -> set[str]:
    """The files of the user of which the rank has run something."""
    if record.path is not None:
        return {code.file for code in record.path.codes if code.user and code.file[:1] != "<"}
    return {line.site.file for line in record.lines.lines} if record.lines is not None else set()


def _began(records: Mapping[int, RankRecord]) -> float:
    """The earliest known time of the run, in seconds of the monotonic clock: it began then or before."""
    known = [record.marks[0].at_ns for record in records.values() if record.marks]
    known += [record.calls[0].entered_ns for record in records.values() if record.calls]
    times = [at for at in known if at > 0]
    return min(times) / 1e9 if times else float("inf")


def _distance(path: str, others: Collection[str]) -> int:
    """How many folders lie between a file and the nearest of others."""
    mine = path.split(os.sep)[:-1]
    found: list[int] = []
    for other in others:
        theirs = other.split(os.sep)[:-1]
        pairs = enumerate(zip(mine, theirs, strict=False))
        shared = next((place for place, (one, same) in pairs if one != same), min(len(mine), len(theirs)))
        found.append(len(mine) + len(theirs) - 2 * shared)
    return min(found, default=0)
