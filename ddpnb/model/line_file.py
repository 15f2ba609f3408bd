"""The file of executed lines of one rank, readable from any process of the host, also when the rank is dead.

Layout (little-endian): a header, texts (names of files and functions), a table of lines, a ring of hits, and a ring of
windows. A line has one row in the table for the whole run: where it is, the first and the last window in which it ran, and
in how many it did. A hit is the row of a line and the number of the window, written when the line first runs in that window,
so that a reader drops what is being overwritten. The writer never waits for a reader.

Nothing in the file is trusted: sizes are bounded, and rows that do not fit together are left out.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Any

from ddpnb.model.calls import Site
from ddpnb.model.executed_lines import ExecutedLine, ExecutedLines, Window
from ddpnb.model.names import function_name
from ddpnb.model.shared import readable

MAGIC = b"ddpnbLN1"
HEADER_SIZE = 4096
TEXTS_SIZE = 512 << 10
LINES = 1 << 16  # rows of the table: lines of all files that a rank can execute in a run
HITS = 1 << 16  # a power of two
WINDOWS = 1024
LONGEST = 4096  # bytes of a text

# run, bytes of texts, rows of the table, lines without room, hits, windows: each 8 bytes
HEAD = struct.Struct("<6Q")
HEAD_AT = 8
RUN, TEXTS, ROWS, DROPPED, HITTED, OPENED = range(6)
#: columns of the table, each of 4 bytes: file and function (numbers of texts), line, first and last window, windows
COLUMNS = FILE, FUNCTION, LINE, FIRST, LAST, COUNT = range(6)
# number, time, calls, steps, hits before it
WINDOW = struct.Struct("<5Q")

TEXTS_AT = HEADER_SIZE
TABLE_AT = TEXTS_AT + TEXTS_SIZE
HITS_AT = TABLE_AT + len(COLUMNS) * 4 * LINES
WINDOWS_AT = HITS_AT + 8 * HITS
FILE_SIZE = WINDOWS_AT + WINDOWS * WINDOW.size

assert HEAD_AT + HEAD.size <= HEADER_SIZE and HITS & (HITS - 1) == 0


def column_at(column: int) -> int:
    """Where a column of the table begins."""
    return TABLE_AT + column * 4 * LINES


class LineReader:
    """Reads the executed lines of one rank.

    Args:
        source: ``FileBytes``, or anything with the buffer protocol (an mmap, bytes).

    Raises:
        ValueError: the source is not a file of executed lines.
    """

    def __init__(self, source: Any) -> None:
        self._source = readable(source)
        if len(self._source) < FILE_SIZE or self._source.read(0, 8) != MAGIC:
            raise ValueError("not a file of executed lines of ddpnb")

    def close(self) -> None:
        self._source.close()

    def _head(self) -> tuple[int, ...]:
        return HEAD.unpack(self._source.read(HEAD_AT, HEAD.size))

    def read(self, run: int, last: int = WINDOWS) -> ExecutedLines | None:
        """What was recorded of this run, with its last windows.

        Args:
            run: its number.
            last: how many windows at most.

        Returns:
            The lines; None if the file is of another run.
        """
        head = self._head()
        if head[RUN] != run:
            return None
        windows = self._windows(head[OPENED], min(last, WINDOWS))
        hits = self._hits(windows)
        lines, rows = self._lines(min(self._head()[ROWS], LINES))
        paths: dict[tuple[int, ...], int] = {}
        found: list[Window] = []
        for number, began, calls, steps, _ in windows:
            path = tuple(dict.fromkeys(rows[row] for row in hits.get(number, ()) if row in rows))
            found.append(Window(number, began, calls, steps, paths.setdefault(path, len(paths))))
        after = self._head()
        if after[RUN] != run:
            return None
        gone = after[HITTED] - HITS  # a window whose first hits were overwritten meanwhile is not whole
        kept = [window for window, entry in zip(found, windows, strict=True) if entry[4] >= gone]
        used = sorted({window.path for window in kept})
        places = {path: place for place, path in enumerate(used)}
        whole = list(paths)
        return ExecutedLines(
            lines,
            tuple(Window(w.number, w.began_ns, w.calls, w.steps, places[w.path]) for w in kept),
            tuple(whole[path] for path in used),
            after[DROPPED],
        )

    def _windows(self, opened: int, last: int) -> list[tuple[int, ...]]:
        """The last windows of the run, oldest first."""
        block = self._source.read(WINDOWS_AT, WINDOWS * WINDOW.size)
        numbers = range(max(1, opened - last + 1), opened + 1)
        rows = [WINDOW.unpack_from(block, (number - 1) % WINDOWS * WINDOW.size) for number in numbers]
        return [row for number, row in zip(numbers, rows, strict=True) if row[0] == number]

    def _hits(self, windows: Sequence[tuple[int, ...]]) -> dict[int, list[int]]:
        """By window: the rows of the lines that ran in it."""
        found: dict[int, list[int]] = {}
        if not windows:
            return found
        hitted = self._head()[HITTED]
        first = max(windows[0][4], hitted - HITS)
        ring = array("Q", self._source.read(HITS_AT, 8 * HITS))
        for number in range(first, hitted):
            hit = ring[number & (HITS - 1)]
            found.setdefault(hit >> 32, []).append(hit & 0xFFFFFFFF)
        return found

    def _lines(self, count: int) -> tuple[tuple[ExecutedLine, ...], dict[int, int]]:
        """The lines, and for each row of the table its index among them."""
        texts = self._texts()
        columns: list[tuple[int, ...]] = [
            struct.unpack(f"<{count}I", self._source.read(column_at(column), 4 * count)) for column in COLUMNS
        ]
        found: list[ExecutedLine] = []
        rows: dict[int, int] = {}
        for row in range(count):
            file, function, line, first, last, windows = (column[row] for column in columns)
            if windows and file < len(texts) and function < len(texts):
                rows[row] = len(found)
                site = Site(texts[file], line, function_name(texts[function]))
                found.append(ExecutedLine(site, first, last, windows))
        return tuple(found), rows

    def _texts(self) -> list[str]:
        data = self._source.read(TEXTS_AT, min(self._head()[TEXTS], TEXTS_SIZE))
        found: list[str] = []
        at = 0
        while at + 4 <= len(data):
            size = int.from_bytes(data[at : at + 4], "little")
            if size > LONGEST or at + 4 + size > len(data):
                break
            found.append(data[at + 4 : at + 4 + size].decode("utf-8", "replace"))
            at += 4 + size
        return found
