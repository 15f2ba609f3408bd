"""The files of a report: found below the given paths, opened with bounds on their size, unpacked where they are compressed."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO

from ddpnb.errors import UsageError
from ddpnb.recording import arguments
from ddpnb.recording.files import similar
from ddpnb.reports import archives
from ddpnb.reports.archives import DAMAGED, MOST_FILES

HEAD = 64 << 10  # bytes by which a format is recognised
LARGEST = 1 << 30  # bytes of one file that is read as a whole
FIRST, LAST = 2 << 20, 6 << 20  # bytes of a log that are read, of its beginning and of its end
_MOST_READ = 1 << 30  # bytes of a log that are looked at
_CHUNK = 1 << 20
_SKIPPED = frozenset({"__pycache__", ".git", ".ipynb_checkpoints", "node_modules"})


@dataclass(frozen=True)
class ReportFile:
    """One file of a report.

    Args:
        path: its name, for messages.
        open: opens it for reading, unpacked; it need not be seekable.
        size: bytes, where known: -1 for a pipe or a compressed file.
        plain: whether ``path`` can be opened as it is.
        left_out: whether it is only the beginning and the end of what was given.
    """

    path: str
    open: Callable[[], IO[bytes]] = field(repr=False)
    size: int = -1
    plain: bool = True
    left_out: bool = False

    def head(self) -> bytes:
        """Its first bytes, by which its format is recognised."""
        with self._opened() as file:
            return self._read(file, HEAD)

    def whole(self, most: int = LARGEST) -> bytes:
        """All of it.

        Raises:
            UsageError: it is larger than ``most`` bytes, or cannot be read.
        """
        with self._opened() as file:
            data = self._read(file, most + 1)
        if len(data) > most:
            raise UsageError(
                f"{arguments.short(self.path)} is too large: more than {most >> 20} MiB.", "Give a part of it."
            )
        return data

    def ends(
        self, first: int = FIRST, last: int = LAST, between: Callable[[bytes], None] = lambda _: None
    ) -> tuple[bytes, bytes]:
        """Its beginning and its end; the end is empty where the beginning is all.

        Args:
            first: bytes of its beginning.
            last: bytes of its end.
            between: called with what is between them, piece by piece; of more than 1 GiB, with ``b""`` where some is left out.

        Raises:
            UsageError: it cannot be read.
        """
        with self._opened() as file:
            beginning = self._read(file, first)
            if self.left_out:
                between(b"")
            if self.plain and self.size > _MOST_READ:
                between(b"")
                file.seek(self.size - _MOST_READ + first)
            return beginning, self._last(file, last, between) if len(beginning) == first else b""

    def _last(self, file: IO[bytes], most: int, between: Callable[[bytes], None]) -> bytes:
        held: list[bytes] = []
        total = size = 0
        while size <= _MOST_READ and (chunk := self._read(file, _CHUNK)):
            held.append(chunk)
            total, size = total + len(chunk), size + len(chunk)
            while total - len(held[0]) >= most:
                total -= len(held[0])
                between(held.pop(0))
        if size > _MOST_READ:
            between(b"")
        text = b"".join(held)
        if len(text) > most:
            between(text[:-most])
        return text[-most:]

    def _opened(self) -> IO[bytes]:
        try:
            return self.open()
        except DAMAGED as error:
            raise _unreadable(self.path, error) from None

    def _read(self, file: IO[bytes], size: int) -> bytes:
        """At most ``size`` bytes; of a damaged archive, what could be unpacked."""
        pieces: list[bytes] = []
        wanted = size
        try:
            # read1: what was unpacked before the damage is not lost
            read = getattr(file, "read1", file.read)
            while wanted > 0 and (piece := read(min(wanted, _CHUNK))):
                pieces.append(piece)
                wanted -= len(piece)
        except DAMAGED as error:
            if not pieces:
                raise _unreadable(self.path, error) from None
        return b"".join(pieces)


def _unreadable(path: str, error: Exception) -> UsageError:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return UsageError(
        f"cannot read {arguments.short(path)}: {reason}.",
        similar(path, "Give the path of a recording, a log or a dump."),
    )


def find(paths: Iterable[str | os.PathLike[str]]) -> list[ReportFile]:
    """All files at and below these paths, in the order of their names. ``"-"`` is the standard input.

    Raises:
        UsageError: a path does not exist, or there are more than 50,000 files.
    """
    files: list[ReportFile] = []
    for path in paths:
        name = os.fsdecode(path)
        if name == "-":
            files.append(_of_stream("standard input", sys.stdin.buffer))
            continue
        for found in _below(name):
            files += _unpacked(found)
            if len(files) > MOST_FILES:
                raise UsageError(
                    f"{arguments.short(name)} holds more than {MOST_FILES} files.", "Give the folder of one job."
                )
    return files


def _below(path: str) -> Iterator[str]:
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if not stat.S_ISDIR(mode):
        yield path
        return
    for folder, inside, names in os.walk(path):
        inside[:] = sorted(name for name in inside if name not in _SKIPPED)
        for name in sorted(names):
            one = os.path.join(folder, name)
            if os.path.isfile(one):  # not a pipe or a device, which nobody has asked for
                yield one


def _unpacked(path: str) -> list[ReportFile]:
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                return [_of_stream(path, file)]  # a pipe can be read once
            packed = archives.is_packed(file.read(HEAD))
    except OSError as error:
        raise _unreadable(path, error) from None
    if not packed:
        return [ReportFile(path, lambda: open(path, "rb"), found.st_size)]
    members = archives.members(path, _kept)
    if members is not None:
        return [
            ReportFile(f"{path}/{one.name}", one.open, one.size, plain=False, left_out=one.left_out) for one in members
        ]
    return [ReportFile(path, lambda: archives.unpacked(open(path, "rb")), plain=False)]


def _of_stream(name: str, stream: IO[bytes]) -> ReportFile:
    """A stream, held in memory: its beginning and its end, as of a log."""
    data, left_out = _kept(stream, LARGEST // 4)
    return ReportFile(name, lambda: io.BytesIO(data), len(data), plain=False, left_out=left_out)


def _kept(stream: IO[bytes], first: int = FIRST) -> tuple[bytes, bool]:
    """The beginning and the end of what can be read once, and whether something between them is left out."""
    passed: list[None] = []
    ends = ReportFile("", lambda: stream).ends(first, LAST, lambda _: passed.append(None))
    return b"".join(ends), bool(passed)
