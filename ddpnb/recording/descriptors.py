"""Descriptors that are kept in a process of the user's.

A program may close all that it finds (``os.closerange``), or put a file of its own in the place of one (``os.dup2``). The
number is then that of a file or a socket of the program, which must not be read, written or closed by anybody else.
"""

# pyright: standard
from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import socket
import stat
from collections.abc import Iterator

_HIGH, _HIGHEST = 1 << 12, 1 << 16  # the kernel's table, which a fork copies, has room for all lower numbers
_LAST = 32  # numbers above a limit


class Descriptor:
    """A descriptor of ours, which knows what it stands for.

    Raises:
        OSError: it is not open.
    """

    __slots__ = ("__weakref__", "number", "what")

    def __init__(self, number: int) -> None:
        self.number = number
        self.what = _what(number)

    @property
    def is_ours(self) -> bool:
        """Whether the number still stands for what it stood for."""
        try:
            return _what(self.number) == self.what
        except OSError:
            return False

    def checked(self) -> int:
        """Its number, for a single call to the system.

        Raises:
            OSError: it is not ours any more.
        """
        number = self.number
        if not self.is_ours or self.number != number:  # another thread may close it meanwhile
            raise OSError(errno.EBADF, "the program has closed this descriptor")
        return number

    def close(self) -> None:
        """Close it, if it is ours. Safe to call twice."""
        ours, number = self.is_ours, self.number
        self.number = -1
        if ours:
            os.close(number)


def _what(number: int) -> tuple[int, int, str]:
    status = os.fstat(number)
    kind = ""
    if not stat.S_IFMT(status.st_mode):  # of no file: such descriptors may all share one inode
        with contextlib.suppress(OSError):
            kind = os.readlink(f"/proc/self/fd/{number}")
    return status.st_dev, status.st_ino, kind


def out_of_the_way(number: int) -> int:
    """Move a descriptor to a number that the program's own files and sockets do not get; returns that.

    It is above the limit of this process where that may be raised for a moment: ``dup2`` does not reach it then either.
    """
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    moved = _above(number, limits)
    if moved is None:
        try:
            moved = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, min(limits[0], _HIGH) * 7 // 8)
        except OSError:
            return number
    os.close(number)
    return moved


def _above(number: int, limits: tuple[int, int]) -> int | None:
    soft, hard = limits
    if not 0 <= soft < _HIGHEST:
        return None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft + _LAST, max(hard, soft + _LAST) if hard >= 0 else hard))
        try:
            return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, soft)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    except (OSError, ValueError):  # only root may raise the second limit
        return None


@contextlib.contextmanager
def as_socket(number: int) -> Iterator[socket.socket]:
    """A socket by its descriptor, which stays open and blocks as before.

    Python would let none of them block once the program has called ``socket.setdefaulttimeout``.

    Raises:
        OSError: it is none.
    """
    blocks = os.get_blocking(number)
    one = socket.socket(fileno=number)
    try:
        if os.get_blocking(number) != blocks:
            os.set_blocking(number, blocks)
        yield one
    finally:
        one.detach()


def open_missing() -> None:
    """Open /dev/null for each of the descriptors 0, 1 and 2 that is closed.

    Otherwise what the process opens next gets these numbers: a connection of gloo, which aborts the process when
    standard output is put there for the next script.

    Raises:
        OSError: the process may open no further file.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
