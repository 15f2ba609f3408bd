"""Writes the file with the path of this rank (the format is in model.path_file)."""

from __future__ import annotations

import json
import threading
from array import array
from typing import Any

from ddpnb.recorder.files import shared_files
from ddpnb.recorder.files.locks import is_mine
from ddpnb.recording import path_file as layout


class PathFile:
    """A table and a ring in shared memory. Any thread may write.

    Raises:
        OSError: there is no room for the file.
    """

    def __init__(self, path: str) -> None:
        self._memory = shared_files.mapped(shared_files.create(path, layout.FILE_SIZE), layout.FILE_SIZE)
        self._memory[:8] = layout.MAGIC
        view = memoryview(self._memory)
        self._head = view[layout.HEAD_AT : layout.HEAD_AT + layout.HEAD.size].cast("Q")
        self._ring = view[layout.RING_AT : layout.RING_AT + 8 * layout.WORDS].cast("Q")
        self._lock = threading.RLock()

    def new_run(self, run: int) -> None:
        """Forget the path of the last run."""
        head = self._head
        head[layout.RUN] = 0  # a reader sees no run before it sees the next
        for field in (layout.TABLE, layout.BEGUN, layout.WRITTEN):
            head[field] = 0
        head[layout.RUN] = run

    def end(self) -> None:
        """What follows is not recorded."""
        self._head[layout.RUN] = 0

    def say(self, *line: Any) -> bool:
        """Add a line to the table; False where there is no room, or nothing may be written now."""
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if is_mine(self._lock):
            return False
        with self._lock:
            used = self._head[layout.TABLE]
            if used + len(data) > layout.TABLE_SIZE:
                return False
            at = layout.TABLE_AT + used
            self._memory[at : at + len(data)] = data
            self._head[layout.TABLE] = used + len(data)
        return True

    def write(self, thread: int, words: array[int]) -> None:
        """Add words of a thread to the ring. One thread at a time may call this."""
        head, ring = self._head, self._ring
        for first in range(0, len(words), layout.PIECE):
            piece = words[first : first + layout.PIECE]
            piece.append(thread << layout.THREAD | len(piece))
            at = head[layout.WRITTEN]
            head[layout.BEGUN] = after = at + len(piece)
            place = at % layout.WORDS
            left = layout.WORDS - place
            if left >= len(piece):
                ring[place : place + len(piece)] = piece
            else:
                ring[place:] = piece[:left]
                ring[: len(piece) - left] = piece[left:]
            head[layout.WRITTEN] = after
