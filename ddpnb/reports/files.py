"""The files of a report: found below the given paths, opened with bounds on their size, unpacked where they are compressed."""

from __future__ import annotations

import io
import os
import stat
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from ddpnb.errors import UsageError
from ddpnb.recording import arguments

HEAD = 64 << 10  # bytes by which a format is recognised
MOST_FILES = 50_000
LARGEST = 1 << 30  # bytes of one file that is read as a whole
FIRST, LAST = 8 << 20, 24 << 20  # bytes of a log that are read, of its beginning and of its end
_MOST_UNPACKED = 1 << 30  # bytes that are unpacked to find the end of a compressed log
_MOST_MEMBERS = 100_000  # of a gzip file, which may have millions of empty ones
_CHUNK, _PACKED = 1 << 20, 1 << 16
_ENTRY = b"PK\x01\x02"  # before each entry of a zip archive's table
_SKIPPED = frozenset({"__pycache__", ".git", ".ipynb_checkpoints", "node_modules"})


@dataclass(frozen=True)
class ReportFile:
    """One file of a report.

    Args:
        path: its name, for messages.
        open: opens it for reading, unpacked; it need not be seekable.
        size: bytes, where known: -1 for a pipe or a compressed file.
        plain: whether ``path`` can be opened as it is.
    """

    path: str
    open: Callable[[], IO[bytes]] = field(repr=False)
    size: int = -1
    plain: bool = True

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

    def ends(self, first: int = FIRST, last: int = LAST) -> tuple[bytes, bytes]:
        """Its beginning and its end; the end is empty where the beginning is all.

        Raises:
            UsageError: it cannot be read.
        """
        with self._opened() as file:
            beginning = self._read(file, first)
            if len(beginning) < first:
                return beginning, b""
            if self.plain and self.size > first + last:
                file.seek(-last, os.SEEK_END)
                return beginning, self._read(file, last)
            return beginning, self._last(file, last)

    def _last(self, file: IO[bytes], most: int) -> bytes:
        held: list[bytes] = []
        total = unpacked = 0
        while unpacked < _MOST_UNPACKED and (chunk := self._read(file, _CHUNK)):
            held.append(chunk)
            total, unpacked = total + len(chunk), unpacked + len(chunk)
            while total - len(held[0]) >= most:
                total -= len(held.pop(0))
        return b"".join(held)[-most:]

    def _opened(self) -> IO[bytes]:
        try:
            return self.open()
        except (OSError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
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
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            if not pieces:
                raise _unreadable(self.path, error) from None
        return b"".join(pieces)


def _unreadable(path: str, error: Exception) -> UsageError:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return UsageError(
        f"cannot read {arguments.short(path)}: {reason}.", "Give the path of a recording, a log or a dump."
    )


class _Gzip(io.RawIOBase):
    """A compressed file, unpacked: what a member says of itself is skipped, however long it is."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")
        self._unpacking = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self._members = 1

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while True:
            packed = self._unpacking.unconsumed_tail
            if self._unpacking.eof:
                packed = self._unpacking.unused_data.lstrip(b"\0") or self._file.read(_PACKED).lstrip(b"\0")
                self._members += 1
                if not packed or self._members > _MOST_MEMBERS:
                    return 0
                self._unpacking = zlib.decompressobj(16 + zlib.MAX_WBITS)
            elif not packed and not (packed := self._file.read(_PACKED)):
                raise EOFError("it is cut off")
            if data := self._unpacking.decompress(packed, len(buffer)):
                buffer[: len(data)] = data
                return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


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
            magic = file.read(4)
    except OSError as error:
        raise _unreadable(path, error) from None
    if magic[:2] == b"\x1f\x8b":
        return [ReportFile(path, lambda: io.BufferedReader(_Gzip(path), _CHUNK), plain=False)]
    if magic == b"PK\x03\x04":
        return _members(path)
    return [ReportFile(path, lambda: open(path, "rb"), found.st_size)]


def _of_stream(name: str, stream: IO[bytes]) -> ReportFile:
    """A stream, held in memory: its beginning and its end, as of a log."""
    source = ReportFile(name, lambda: stream, plain=False)
    beginning = source._read(stream, LARGEST // 4)
    data = beginning if len(beginning) < LARGEST // 4 else beginning + source._last(stream, LAST)
    return ReportFile(name, lambda: io.BytesIO(data), len(data), plain=False)


def _members(path: str) -> list[ReportFile]:
    """The files of a zip archive: each is opened by itself, with the same bounds as any other."""
    try:
        with open(path, "rb") as file:
            entries = sum(chunk.count(_ENTRY) for chunk in iter(lambda: file.read(_CHUNK), b""))
        if entries > MOST_FILES:  # before its table is read
            raise UsageError(
                f"{arguments.short(path)} holds more than {MOST_FILES} files.", "Give the files of one job."
            )
        archive = zipfile.ZipFile(path)
        members = [one for one in archive.infolist() if not one.is_dir()]
    except UsageError:
        raise
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError) as error:
        raise UsageError(
            f"{arguments.short(path)} is a damaged archive ({error}).", "Unpack it and give the folder."
        ) from None

    def opener(member: zipfile.ZipInfo) -> Callable[[], IO[bytes]]:
        def opened() -> IO[bytes]:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # these unpack without a limit
                raise NotImplementedError("it is not compressed by deflate")
            return archive.open(member)

        return opened

    return [ReportFile(f"{path}/{one.filename}", opener(one), plain=False) for one in members]
