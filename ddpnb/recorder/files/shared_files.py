"""Memory-mapped files that ranks write. Standard library only.

All of their space is allocated when they are made: a process that touches a page of a sparse file for which there is no
room is killed with SIGBUS, and that would be the user's training.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os

_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_BLOCK = bytes(1 << 20)
_MAP_FIXED = 0x10
_mmap = ctypes.CDLL(None, use_errno=True).mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long


def mapped(fd: int, size: int) -> mmap.mmap:
    """Map an open file, and close it. No descriptor is kept: ``mmap.mmap(fd, size)`` would keep a copy.

    Raises:
        OSError: it cannot be mapped.
    """
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        replace(memory, mmap.MAP_SHARED, fd)
    finally:
        os.close(fd)
    return memory


def replace(memory: mmap.mmap, flags: int, fd: int = -1) -> None:
    """Put another mapping in the place of this one: of a file, or of memory that is new.

    Raises:
        OSError: the system refuses it.
    """
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if _mmap(address, len(memory), mmap.PROT_READ | mmap.PROT_WRITE, flags | _MAP_FIXED, fd, 0) != address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


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
