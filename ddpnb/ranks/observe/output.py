"""The ranks' output: complete in one file per rank, streamed with a prefix."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from ddpnb.render.palette import RANK_ANSI
from ddpnb.render.terminal import wants_colour
from ddpnb.texts import printable

_BLOCK = 1 << 20
_OF_TORCH = re.compile(rb"(\[rank\d+\]:)?\[[WE]\d{4} .*\[c10d\]|frame #\d+: |Exception raised from \w+ at |\s*$")
_LONGEST_LINE = 64 << 10


@dataclass
class _Tail:
    offset: int = 0
    rest: bytes = b""  # a line that has not ended yet


class Stream:
    """Copies what the ranks write to ``target``, line by line, each with its rank.

    The ranks write to files, so a slow reader never holds up a rank, and nothing is lost.

    Args:
        logs: the file of each rank.
        target: where to copy to; None to keep the files only.
        limit: bytes after which the copy stops with a notice (a notebook must stay usable), or None.
    """

    def __init__(self, logs: Mapping[int, str], target: TextIO | None, limit: int | None = None) -> None:
        self._logs = logs
        self._target = target
        self._left = limit
        #: leave out messages of torch's C++ about connections that were closed on purpose
        self.quiet = False
        self._tails = {rank: _Tail() for rank in logs}
        colour = target is not None and wants_colour(target)
        self._prefix = {rank: _prefix(rank, max(logs, default=0), colour) for rank in logs}

    def pump(self, last: bool = False) -> None:
        """Copy new output. ``last``: end unfinished lines too."""
        for rank, tail in self._tails.items():
            while self._target is not None and (block := self._read(rank, tail)):
                lines = (tail.rest + block).split(b"\n")
                tail.rest = lines.pop()
                if len(tail.rest) > _LONGEST_LINE:
                    lines.append(tail.rest)
                    tail.rest = b""
                self._write(rank, lines)
            if last and tail.rest:
                self._write(rank, [tail.rest])
                tail.rest = b""

    def say(self, text: str) -> None:
        """Write a line of our own."""
        if self._target is not None:
            with contextlib.suppress(OSError, ValueError):
                self._target.write(f"ddpnb: {printable(text)}\n")
                self._target.flush()

    def _read(self, rank: int, tail: _Tail) -> bytes:
        try:
            with open(self._logs[rank], "rb") as file:
                file.seek(tail.offset)
                block = file.read(_BLOCK)
        except OSError:
            return b""
        tail.offset += len(block)
        return block

    def _write(self, rank: int, lines: list[bytes]) -> None:
        target = self._target
        if target is None or not lines:
            return
        if self.quiet:
            lines = [line for line in lines if not _OF_TORCH.match(line)]
        prefix = self._prefix[rank]
        text = "".join(f"{prefix}{line.decode('utf-8', 'replace')}\n" for line in lines)
        if self._left is not None:
            self._left -= len(text)
            if self._left < 0:
                self._target = None
                folder = os.path.dirname(self._logs[rank])
                text = text[: max(0, len(text) + self._left)] + f"\nddpnb: output truncated; full logs: {folder}\n"
        encoding = getattr(target, "encoding", None) or "utf-8"
        try:
            target.write(text.encode(encoding, "backslashreplace").decode(encoding))
            target.flush()
        except (OSError, ValueError):  # the reader closed the pipe: the files remain
            self._target = None


def _prefix(rank: int, highest: int, colour: bool) -> str:
    text = f"[rank {rank:>{len(str(highest))}}] "
    return f"\x1b[{RANK_ANSI[rank % len(RANK_ANSI)]}m{text}\x1b[0m" if colour else text
