"""The text of the user's files that the ranks of a run are in, called from, or executed lines of."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping

from ddpnb.model.calls import NO_SITE
from ddpnb.model.recording import RankRecord

_LIMIT = 1 << 20  # characters of a file
_EXECUTED = 128  # files that ranks only executed lines of
_EXECUTED_LIMIT = 4 << 20  # characters of these together


class SourceFiles:
    """Reads each file once, when it first occurs.

    ``edited`` are the files that were written after the run began and before they were read.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._executed: dict[str, int] = {}  # characters of files that ranks only executed lines of
        self.edited: list[str] = []

    def of(self, records: Mapping[int, RankRecord]) -> dict[str, str]:
        """The texts of these and of earlier records."""
        wanted: set[str] = set()
        for record in records.values():
            wanted.update(frame.file for stack in record.stacks if stack.main for frame in stack.user_frames)
            wanted.update(call.site.file for call in record.calls[-4:])
            wanted.update(sample.site.file for sample in record.samples[-16:])
            wanted.update(event.site.file for event in record.history if event.site != NO_SITE)
            if record.ending is not None:
                wanted.update(frame.file for frame in record.ending.frames if frame.user)
        began = _began(records)
        for path in wanted - set(self._texts):
            self._read(path, began)
        lines = (record.lines.lines for record in records.values() if record.lines is not None)
        executed = {line.site.file for of_rank in lines for line in of_rank} - set(self._texts)
        for path in sorted(executed, key=lambda path: (_distance(path, wanted), path)):
            if len(self._executed) >= _EXECUTED or sum(self._executed.values()) >= _EXECUTED_LIMIT:
                break
            self._executed[path] = self._read(path, began)
        return dict(self._texts)

    def _read(self, path: str, began: float) -> int:
        """Read a file; returns how long it is."""
        self._texts[path] = ""
        try:
            if not os.path.isfile(path):  # a pipe would not end
                return 0
            with open(path, encoding="utf-8", errors="replace") as file:
                self._texts[path] = file.read(_LIMIT)
                if os.fstat(file.fileno()).st_mtime > began:
                    self.edited.append(path)
        except (OSError, ValueError):
            pass
        return len(self._texts[path])


def _began(records: Mapping[int, RankRecord]) -> float:
    """The earliest known time of the run, as of files: it began then or before."""
    known = [lines.windows[0].began_ns for record in records.values() if (lines := record.lines) and lines.windows]
    known += [record.calls[0].entered_ns for record in records.values() if record.calls]
    times = [at for at in known if at > 0]
    return time.time() - (time.monotonic_ns() - min(times)) / 1e9 if times else float("inf")


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
