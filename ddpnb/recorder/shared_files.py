"""Memory-mapped files that ranks write. Standard library only.

All of their space is allocated when they are made: a process that touches a page of a sparse file for which there is no
room is killed with SIGBUS, and that would be the user's training.
"""

from __future__ import annotations

import contextlib
import os

_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_BLOCK = bytes(1 << 20)


def allocate(fd: int, size: int) -> None:
    """Give an open file this size and the space for all of it; what it holds stays.

    Raises:
        OSError: there is no room.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    at = os.fstat(fd).st_size
    while at < size:
        at += os.pwrite(fd, _BLOCK[: size - at], at)


def create(path: str, size: int) -> int:
    """A new file full of zeros in place of what has this name; returns its descriptor.

    Readers of the former file keep it. When there is no room, that file stays as it is.

    Raises:
        OSError: there is no room, or the folder cannot be written.
    """
    fd = prepare(path, size)
    try:
        adopt(path)
    except BaseException:
        os.close(fd)
        discard(path)
        raise
    return fd


def prepare(path: str, size: int) -> int:
    """A new file full of zeros beside what has this name, for ``adopt`` or ``discard``; returns its descriptor.

    Raises:
        OSError: there is no room, or the folder cannot be written.
    """
    discard(path)
    fd = os.open(_fresh(path), _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        allocate(fd, size)
    except BaseException:
        os.close(fd)
        discard(path)
        raise
    return fd


def adopt(path: str) -> None:
    """Put the file that was prepared for this name in its place."""
    os.rename(_fresh(path), path)


def discard(path: str) -> None:
    """Remove the file that was prepared for this name, if there is one."""
    with contextlib.suppress(OSError):
        os.unlink(_fresh(path))


def _fresh(path: str) -> str:
    return f"{path}.new"


def take(path: str, size: int) -> int:
    """The file that the launcher has allocated for this process, if it is still untouched; otherwise a new one.

    Raises:
        OSError: there is no room for a new one.
    """
    try:
        fd = os.open(path, _FLAGS)
    except OSError:
        return create(path, size)
    if os.fstat(fd).st_size == size and os.pread(fd, 8, 0) == bytes(8):
        return fd
    os.close(fd)
    return create(path, size)


def share(path: str, size: int) -> int:
    """A file that several processes write: made by the first of them.

    Raises:
        OSError: there is no room.
    """
    fd = os.open(path, _FLAGS | os.O_CREAT, 0o600)
    try:
        allocate(fd, size)
    except BaseException:
        os.close(fd)
        raise
    return fd
