"""What has changed in the files of the ranks of a host since the launcher last had them.

A change counts as sent when the launcher says that it has it: an answer may be lost on the way.
"""

from __future__ import annotations

import base64
import mmap
import os
import re
import zlib
from collections.abc import Iterator
from typing import Any

PAGE = 4096
PAGED = re.compile(r"rank(\d{1,9})\.(?:box|samples|path|status)")
_NOT_SENT = re.compile(r"fence-.*|rank\d+|.*\.(?:new|part|sock|key|py|claim|sent)|\..*")
_GROWING = re.compile(r".*\.(?:log|displays|crash)")
LOG = re.compile(r"rank\d{1,9}\.(?:log|displays)")
_LARGEST = 16 << 20  # bytes of one file that are sent
_AT_ONCE = 1 << 20  # of files that are not paged, in one answer
_DEPTH = 2  # of folders below a root


def packed(data: bytes) -> str:
    """Bytes as text, for JSON."""
    return base64.b64encode(zlib.compress(data, 1)).decode()


def unpacked(text: str) -> bytes:
    """The bytes that ``packed`` was given.

    Raises:
        ValueError: it is something else, or larger than what is ever sent at once.
    """
    try:
        opener = zlib.decompressobj()
        data = opener.decompress(base64.b64decode(text, validate=True), _LARGEST + PAGE)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not opener.eof:
        raise ValueError("too large" if opener.unconsumed_tail else "cut short")
    return data


class PagedFile:
    """A memory-mapped file of a rank, page by page.

    Its first page holds the counters, which are written after what they count: it is read first, so that the launcher never
    has a counter without what it counts.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._identity = (0, 0)
        self._memory: mmap.mmap | None = None
        self.had = bytearray()  # what the launcher has
        self._waiting: dict[int, bytes] = {}  # pages of the last answer
        self._turn = 0

    def renew(self) -> None:
        """The launcher has made a file of zeros in its place, and so has this host."""
        self._identity = (0, 0)
        self.had, self._waiting = bytearray(), {}

    def changes(self, *, arrived: bool) -> dict[str, Any] | None:
        """The pages that the launcher does not have; None if it has all.

        Args:
            arrived: whether the last answer has.
        """
        if arrived:
            for page, data in self._waiting.items():
                self.had[page * PAGE : page * PAGE + len(data)] = data
        self._waiting = {}
        if not self._open() or self._memory is None:
            return None
        self._turn += 1
        head = self._memory[:PAGE]
        # Lines that run are noted without a counter, and a call may end long after it began: look at all now and then.
        if head == self.had[:PAGE] and self._turn % 8:
            return None
        body = self._memory[:]
        self._waiting = dict(_pages(body, self.had)) | ({0: head} if head != self.had[:PAGE] else {})
        if not self._waiting:
            return None
        return {"size": len(body), "pages": [[page, packed(data)] for page, data in self._waiting.items()]}

    def _open(self) -> bool:
        try:
            status = os.stat(self.path, follow_symlinks=False)
            if (status.st_dev, status.st_ino) == self._identity:
                return True
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                self._memory = mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ)
            finally:
                os.close(fd)
        except (OSError, ValueError):
            return False
        self._identity = status.st_dev, status.st_ino
        if len(self.had) != len(self._memory):
            self.had = bytearray(len(self._memory))
        return True


def _pages(body: bytes, had: bytearray) -> Iterator[tuple[int, bytes]]:
    """The pages but the first that differ; blocks of many pages are compared at once."""
    block = 64 * PAGE
    for start in range(0, len(body), block):
        if body[start : start + block] == had[start : start + block]:
            continue
        for at in range(max(start, PAGE), min(start + block, len(body)), PAGE):
            page = body[at : at + PAGE]
            if page != had[at : at + PAGE]:
                yield at // PAGE, page


class OtherFiles:
    """The other files below a folder: logs, endings, descriptions of models.

    Args:
        root: the folder.
        logs: of these alone, since the folder is the user's own.
    """

    def __init__(self, root: str, *, logs: bool = False) -> None:
        self._root = root
        self._logs = logs
        self._had: dict[str, tuple[int, int, int]] = {}  # name -> inode, bytes that were sent, time of the last change
        self._waiting: dict[str, tuple[int, int, int]] = {}

    def changes(self, *, arrived: bool) -> list[list[Any]]:
        """``[[name, offset, data], ...]``; the offset is -1 where the data are all of a file that is new or was replaced."""
        if arrived:
            self._had |= self._waiting
        self._waiting = {}
        found: list[list[Any]] = []
        room = _AT_ONCE
        for name, status in self._files(self._root, _DEPTH):
            inode, sent, changed = self._had.get(name, (0, 0, 0))
            if room <= 0 or (status.st_size > _LARGEST and not _GROWING.fullmatch(name)):
                continue
            grows = bool(_GROWING.fullmatch(name)) and inode == status.st_ino and status.st_size >= sent
            if inode == status.st_ino and sent == status.st_size and (grows or changed == status.st_mtime_ns):
                continue
            data = self._read(name, sent if grows else 0, room if _GROWING.fullmatch(name) else _LARGEST)
            if data is None:
                continue
            room -= len(data)
            found.append([name, sent if grows else -1, packed(data)])
            self._waiting[name] = status.st_ino, (sent if grows else 0) + len(data), status.st_mtime_ns
        return found

    def _read(self, name: str, at: int, most: int) -> bytes | None:
        try:
            with open(os.path.join(self._root, name), "rb") as file:
                file.seek(at)
                return file.read(most)
        except OSError:  # it was removed
            return None

    def _files(self, folder: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
        try:
            entries = list(os.scandir(folder))
        except OSError:
            return
        for entry in entries:
            if _NOT_SENT.fullmatch(entry.name) or PAGED.fullmatch(entry.name):
                continue
            if self._logs and not LOG.fullmatch(entry.name):
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    if depth:
                        yield from self._files(entry.path, depth - 1)
                elif entry.is_file(follow_symlinks=False):
                    yield os.path.relpath(entry.path, self._root), entry.stat(follow_symlinks=False)
            except OSError:
                continue


class Files:
    """All files of ranks in a folder.

    Args:
        folder: the folder.
        logs: it is the user's own: only logs of ranks are sent.
    """

    def __init__(self, folder: str, *, logs: bool = False) -> None:
        self._folder, self._logs = folder, logs
        self._paged: dict[str, PagedFile] = {}
        self._others = OtherFiles(folder, logs=logs)

    def renew(self, name: str) -> None:
        """See ``PagedFile.renew``."""
        if name in self._paged:
            self._paged[name].renew()

    def had(self, name: str) -> bytes:
        """What the launcher has of this memory-mapped file."""
        return bytes(self._paged[name].had) if name in self._paged else b""

    def changes(self, *, arrived: bool) -> dict[str, Any]:
        """``paged``: ``[[name, change], ...]`` (``PagedFile.changes``); ``others``: see ``OtherFiles.changes``."""
        for name in () if self._logs else os.listdir(self._folder):
            if PAGED.fullmatch(name) and name not in self._paged:
                self._paged[name] = PagedFile(os.path.join(self._folder, name))
        changes = {name: file.changes(arrived=arrived) for name, file in self._paged.items()}
        return {
            "paged": [[name, change] for name, change in changes.items() if change is not None],
            "others": self._others.changes(arrived=arrived),
        }
