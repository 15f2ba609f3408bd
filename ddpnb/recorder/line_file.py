"""Writes the file of executed lines of this rank (the format is in model.line_file)."""

from __future__ import annotations

import threading
from itertools import count

from ddpnb.model import line_file as layout
from ddpnb.recorder import shared_files
from ddpnb.recorder.clock import now_ns
from ddpnb.recorder.locks import is_mine


class LineFile:
    """A table of lines and two rings in shared memory. Any thread may write.

    Raises:
        OSError: there is no room for the file.
    """

    def __init__(self, path: str) -> None:
        self._memory = shared_files.mapped(shared_files.create(path, layout.FILE_SIZE), layout.FILE_SIZE)
        self._memory[:8] = layout.MAGIC
        view = memoryview(self._memory)
        #: fields of the header; columns of the table; the ring of hits
        self.head = view[layout.HEAD_AT : layout.HEAD_AT + layout.HEAD.size].cast("Q")
        self.columns = [view[at : at + 4 * layout.LINES].cast("I") for at in map(layout.column_at, layout.COLUMNS)]
        self.hits = view[layout.HITS_AT : layout.HITS_AT + 8 * layout.HITS].cast("Q")
        #: by the name of a file: the rows of its lines; -1: there is no room
        self.rows: dict[str, dict[int, int]] = {}
        self.next_hit = count().__next__
        self._next_row = count().__next__
        self._texts: dict[str, int] = {}
        self._lock = threading.RLock()
        self._from = 0  # hits when the window was opened

    def new_run(self, run: int) -> None:
        """Forget the lines of the last run."""
        head = self.head
        head[layout.RUN] = 0  # a reader sees no run before it sees the next
        for field in (layout.TEXTS, layout.ROWS, layout.DROPPED, layout.HITTED, layout.OPENED):
            head[field] = 0
        self._memory[layout.TEXTS_AT :] = bytes(layout.FILE_SIZE - layout.TEXTS_AT)
        self._texts.clear()
        self.rows.clear()
        self._next_row, self.next_hit = count().__next__, count().__next__
        self.open_window(0, 0)
        head[layout.RUN] = run

    @property
    def window(self) -> int:
        """The number of the current window, from 1."""
        return self.head[layout.OPENED]

    @property
    def hits_in_window(self) -> int:
        """How many lines ran in the current window."""
        return self.head[layout.HITTED] - self._from

    def open_window(self, calls: int, steps: int) -> int:
        """Begin the next window; returns its number."""
        head = self.head
        number, self._from = head[layout.OPENED] + 1, head[layout.HITTED]
        at = layout.WINDOWS_AT + (number - 1) % layout.WINDOWS * layout.WINDOW.size
        layout.WINDOW.pack_into(self._memory, at, number, now_ns(), calls, steps, self._from)
        head[layout.OPENED] = number
        return number

    def add(self, file: str, function: str, line: int) -> int | None:
        """The row of a line that ran for the first time; -1: there is no room; None: nothing may be written now."""
        if is_mine(self._lock):
            return None
        with self._lock:
            rows = self.rows.setdefault(file, {})
            row = rows.get(line)
            if row is not None:
                return row
            places = self._number(file), self._number(function)
            row = self._next_row() if min(places) >= 0 else layout.LINES
            if row >= layout.LINES:
                self.head[layout.DROPPED] += 1
                row = -1
            else:
                columns = self.columns
                columns[layout.FILE][row], columns[layout.FUNCTION][row] = places
                columns[layout.LINE][row] = line & 0xFFFFFFFF
                columns[layout.FIRST][row] = self.window
                self.head[layout.ROWS] = row + 1
            rows[line] = row
            return row

    def _number(self, text: str) -> int:
        """The number of a text; -1 when there is no room."""
        number = self._texts.get(text)
        if number is None:
            data = text.encode("utf-8", "replace")[: layout.LONGEST]
            used = self.head[layout.TEXTS]
            if used + 4 + len(data) > layout.TEXTS_SIZE:
                return -1
            at = layout.TEXTS_AT + used
            self._memory[at : at + 4] = len(data).to_bytes(4, "little")
            self._memory[at + 4 : at + 4 + len(data)] = data
            self.head[layout.TEXTS] = used + 4 + len(data)
            number = self._texts[text] = len(self._texts)
        return number
