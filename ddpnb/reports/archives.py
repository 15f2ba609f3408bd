"""Compressed files and archives, unpacked as they are read: within bounds, and never to disk. Names in them are only shown."""

from __future__ import annotations

import bz2
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

from ddpnb.errors import UsageError
from ddpnb.recording import arguments

MOST_FILES = 50_000
_MOST_UNPACKED = 1 << 30  # bytes of one archive
_MOST_HELD = 128 << 20  # bytes of the files of a compressed tar archive, which cannot be read twice
_MOST_MEMORY = 128 << 20  # bytes that a decompressor may allocate
_MOST_MEMBERS = 100_000  # of a compressed file, which may have millions of empty ones
_LONGEST_NAME = 1 << 16  # bytes of a header that says more of the next file
_CHUNK, _PACKED, _BLOCK = 1 << 20, 1 << 16, 512
_ENTRY = b"PK\x01\x02"  # before each entry of a zip archive's table
_KINDS: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(16 + zlib.MAX_WBITS),
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\x00": lambda: lzma.LZMADecompressor(memlimit=_MOST_MEMORY),
}
_ZIP = b"PK\x03\x04"
_OTHERS = {b"\x28\xb5\x2f\xfd": "zstd", b"7z\xbc\xaf\x27\x1c": "7-Zip", b"Rar!": "RAR", b"\x04\x22\x4d\x18": "LZ4"}
#: what damaged files raise
DAMAGED = (
    OSError, EOFError, ValueError, RuntimeError, NotImplementedError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError,
)  # fmt: skip


class Member(NamedTuple):
    """A file of an archive.

    Args:
        name: as the archive names it.
        open: opens it for reading, unpacked.
        size: bytes; -1: not known.
        left_out: whether something of it is left out.
    """

    name: str
    open: Callable[[], IO[bytes]]
    size: int = -1
    left_out: bool = False


def is_packed(head: bytes) -> bool:
    """Whether a file is compressed, or an archive, by its first bytes."""
    return head.startswith((*_KINDS, _ZIP)) or _is_tar(head)


def unread_kind(head: bytes) -> str:
    """The kind of an archive that is not unpacked here: ``"zstd"``; empty for any other file."""
    return next((kind for magic, kind in _OTHERS.items() if head.startswith(magic)), "")


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


class _Unpacked(io.RawIOBase):
    """A compressed file, unpacked: what a member says of itself is skipped, however long it is."""

    def __init__(self, file: IO[bytes], made: Callable[[], Any]) -> None:
        self._file, self._made, self._unpacking, self._members = file, made, made(), 1

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while True:
            packed = getattr(self._unpacking, "unconsumed_tail", b"")
            if self._unpacking.eof:
                packed = self._unpacking.unused_data.lstrip(b"\0") or self._file.read(_PACKED).lstrip(b"\0")
                self._members += 1
                if not packed or self._members > _MOST_MEMBERS:
                    return 0
                self._unpacking = self._made()
            elif (
                not packed
                and getattr(self._unpacking, "needs_input", True)
                and not (packed := self._file.read(_PACKED))
            ):
                raise EOFError("it is cut off")
            if data := self._unpacking.decompress(packed, len(buffer)):
                buffer[: len(data)] = data
                return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def unpacked(file: IO[bytes]) -> IO[bytes]:
    """A file, unpacked where it is compressed."""
    whole = file if isinstance(file, io.BufferedReader) else io.BufferedReader(file)  # type: ignore[type-var]
    head = whole.peek(8)[:8]
    made = next((made for magic, made in _KINDS.items() if head.startswith(magic)), None)
    return io.BufferedReader(_Unpacked(whole, made), _CHUNK) if made is not None else whole


def members(path: str, kept: Callable[[IO[bytes]], tuple[bytes, bool]]) -> list[Member] | None:
    """The files of an archive.

    Args:
        path: of any file.
        kept: reads of a file what is kept of it, and says whether that is not all.

    Returns:
        None where it is no archive.

    Raises:
        UsageError: it is damaged, or holds too much.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(_BLOCK)
        if head.startswith(_ZIP):
            return _of_zip(path)
        if _is_tar(head):
            return list(_of_tar(path))
        with unpacked(open(path, "rb")) as file:
            if _is_tar(file.peek(_BLOCK)) if isinstance(file, io.BufferedReader) else False:
                return list(_of_compressed_tar(path, file, kept))
        return None
    except UsageError:
        raise
    except DAMAGED as error:
        raise UsageError(
            f"{arguments.short(path)} is a damaged archive ({error}).", "Unpack it and give the folder."
        ) from None


def _of_zip(path: str) -> list[Member]:
    """Each is opened by itself, with the same bounds as any other file."""
    with open(path, "rb") as file:
        entries = sum(chunk.count(_ENTRY) for chunk in iter(lambda: file.read(_CHUNK), b""))
    if entries > MOST_FILES:  # before its table is read
        raise _too_many(path)
    archive = zipfile.ZipFile(path)

    def opener(member: zipfile.ZipInfo) -> Callable[[], IO[bytes]]:
        def opened() -> IO[bytes]:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # these unpack without a limit
                raise NotImplementedError("it is not compressed by deflate")
            return unpacked(archive.open(member))

        return opened

    return [Member(one.filename, opener(one)) for one in archive.infolist() if not one.is_dir()]


class _Entry(tarfile.TarInfo):
    """A file of a tar archive, whose names are read into memory: they are bounded."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if not self.isreg() and self.size > _LONGEST_NAME and not self.isdir():
            raise tarfile.ReadError("a name in it is too long")
        return super()._proc_member(archive)  # type: ignore[misc]


def _files_of(archive: tarfile.TarFile, path: str) -> Iterator[tarfile.TarInfo]:
    for turn, entry in enumerate(archive):
        if turn >= MOST_FILES:
            raise _too_many(path)
        if entry.isreg() and not entry.issparse():
            yield entry


def _of_tar(path: str) -> Iterator[Member]:
    def opener(entry: tarfile.TarInfo) -> Callable[[], IO[bytes]]:
        return lambda: unpacked(io.BufferedReader(_Part(path, entry.offset_data, entry.size)))

    with tarfile.open(path, "r:", tarinfo=_Entry) as archive:
        for entry in _files_of(archive, path):
            yield Member(entry.name, opener(entry))


class _Part(io.RawIOBase):
    """A part of a file."""

    def __init__(self, path: str, start: int, size: int) -> None:
        self._file, self._left = open(path, "rb"), size
        self._file.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Bounded(io.RawIOBase):
    """What was unpacked, up to a bound."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._left = file, _MOST_UNPACKED

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._file.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {_MOST_UNPACKED >> 30} GiB")
        buffer[: len(data)] = data
        return len(data)


def _of_compressed_tar(path: str, file: IO[bytes], kept: Callable[[IO[bytes]], tuple[bytes, bool]]) -> Iterator[Member]:
    """They are read in one pass, and kept in memory."""
    held = 0
    with tarfile.open(fileobj=io.BufferedReader(_Bounded(file)), mode="r|", tarinfo=_Entry) as archive:
        for entry in _files_of(archive, path):
            opened = archive.extractfile(entry)
            data, left_out = kept(unpacked(opened)) if opened is not None else (b"", False)
            held += len(data)
            if held > _MOST_HELD:
                raise UsageError(
                    f"{arguments.short(path)} holds more than {_MOST_HELD >> 20} MiB of logs.",
                    "Unpack it and give the folder.",
                )
            yield Member(entry.name, lambda data=data: io.BytesIO(data), len(data), left_out)


def _too_many(path: str) -> UsageError:
    return UsageError(f"{arguments.short(path)} holds more than {MOST_FILES} files.", "Give the files of one job.")
