"""Bytes that a rank writes while others read them: an open file, or a buffer."""

from __future__ import annotations

import os
import stat
import threading
import weakref
from typing import Any

from ddpnb.recording.descriptors import Descriptor


class FileBytes:
    """The bytes of a file, read with ``pread``.

    A mapping would be faster, but reading it beyond the end of a truncated file raises SIGBUS.

    Args:
        path: the file; it is read through this descriptor even when another file takes its name.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is not a regular file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = self._opened()
        # Not __del__: while that closes the file, another thread can still get this object from a weak reference.
        self._close = weakref.finalize(self, self._descriptor.close)
        self._close.atexit = False
        if not stat.S_ISREG(os.fstat(self._descriptor.number).st_mode):
            self.close()
            raise ValueError("not a regular file")

    def _opened(self) -> Descriptor:
        return Descriptor(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK))

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode of the file."""
        return self._descriptor.what[:2]

    def __len__(self) -> int:
        return os.fstat(self._number()).st_size

    def _number(self) -> int:
        """The descriptor. Where the program has closed it, the file is opened again.

        Raises:
            OSError: it is not there any more.
        """
        mine = self._descriptor
        if mine.number >= 0 and not mine.is_ours:
            again = self._opened()
            if again.what != mine.what:
                again.close()
                mine.number = -1
            else:
                mine.number = again.number
        return mine.checked()

    def read(self, at: int, size: int) -> bytes:
        """``size`` bytes; zeros beyond the end of the file.

        Raises:
            OSError: the program has closed the file, which is not there any more.
        """
        data = os.pread(self._number(), size, at)
        while 0 < len(data) < size and (more := os.pread(self._number(), size - len(data), at + len(data))):
            data += more
        return data.ljust(size, b"\0") if len(data) < size else data

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        self._close()


_files: weakref.WeakValueDictionary[tuple[int, int], FileBytes] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def shared_file(path: str) -> FileBytes:
    """The bytes of a file, with one descriptor for all readers: each run that is kept reads the same boxes.

    It is closed with its last reference; do not close it.

    Raises:
        OSError, ValueError: as ``FileBytes``.
    """
    file = FileBytes(path)
    with _lock:  # while it is open, no other file gets its inode number
        return _files.setdefault(file.identity, file)


class BufferBytes:
    """The bytes of anything with the buffer protocol."""

    def __init__(self, buffer: Any) -> None:
        self._view = memoryview(buffer)

    def __len__(self) -> int:
        return len(self._view)

    def read(self, at: int, size: int) -> bytes:
        """``size`` bytes; zeros where there are none."""
        data = bytes(self._view[at : at + size])
        return data.ljust(size, b"\0") if len(data) < size else data

    def close(self) -> None:
        """Let go of the buffer."""
        self._view.release()


Readable = FileBytes | BufferBytes


def readable(source: Any) -> Readable:
    """``source`` if it is open already, otherwise the bytes of that buffer."""
    return source if isinstance(source, FileBytes) else BufferBytes(source)
