"""A folder that is locked while its process lives, and removed by a later process if its own was killed.

A process ID would not do: in another container that shares the file system it means nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile

from ddpnb.recording.descriptors import Descriptor
from ddpnb.recording.files import own_folder

_MARKER = ".ddpnb-world"
_PREFIX = "ddpnb-"
_TRIES = 3

_locks: set[Descriptor] = set()


def _drop_locks() -> None:
    """A forked child shares the locks of its parent's worlds: it must not hold them when the parent is dead."""
    while _locks:
        with contextlib.suppress(OSError):
            _locks.pop().close()


os.register_at_fork(after_in_child=_drop_locks)


class LockedFolder:
    """One folder that is locked for as long as this process lives, or until it is removed.

    Raises:
        OSError: it cannot be made there.
    """

    def __init__(self, base: str) -> None:
        for mine in user_folders(base):
            _sweep(mine)
            _remove_random(mine)
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):  # another process has just removed it, since it was empty
                path = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=_user_folder(base))
                break
        else:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), base)
        self._make(path)

    def _make(self, path: str) -> None:
        self.path = path
        self._lock = _mark(path)

    @classmethod
    def at(cls, path: str) -> LockedFolder:
        """The folder with this very path, which another host has, made on this one.

        Raises:
            OSError: it cannot be made, or is there already.
        """
        folder = cls.__new__(cls)
        os.makedirs(os.path.dirname(os.path.dirname(path)), exist_ok=True)  # a TMPDIR that this host may not have
        _sweep(own_folder(os.path.dirname(path)))
        os.mkdir(path, 0o700)
        folder._make(path)
        return folder

    def remove(self) -> None:
        """Remove it with all that it holds. Safe to call twice."""
        _remove_marked(self.path)
        _remove_random(os.path.dirname(self.path))
        if self._lock in _locks:
            _locks.discard(self._lock)
            self._lock.close()


def remove_path(path: str) -> None:
    """Remove a file or a folder with all that it holds; what cannot be removed stays."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _remove_marked(folder: str) -> None:
    """Remove a world's folder. Its marker goes last: what an interrupt, or a file that stays, leaves is swept later."""
    marker = os.path.join(folder, _MARKER)
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name != _MARKER:
                remove_path(os.path.join(folder, name))
        if {*os.listdir(folder)} <= {_MARKER}:
            try:
                os.unlink(marker)
            finally:
                _remove_empty(folder, marker)


def _remove_empty(folder: str, marker: str) -> None:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        pass
    except OSError:  # something was written there just now
        os.close(os.open(marker, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def _mark(folder: str) -> Descriptor | None:
    """Mark a folder as that of a living world; returns the descriptor that holds the lock.

    Nobody sees the marker before it is locked. Where files cannot be locked there is none, and nobody sweeps.
    """
    unlocked = os.path.join(folder, f"{_MARKER}.part")
    fd = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    os.rename(unlocked, os.path.join(folder, _MARKER))
    lock = Descriptor(fd)
    _locks.add(lock)
    return lock


def user_folders(base: str) -> list[str]:
    """The folders of this user in which those of worlds are: with the usual name, and with random ones."""
    name = f"{_PREFIX}{os.geteuid()}"
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        return sorted(
            entry.path
            for entry in entries
            if entry.name.partition(".")[0] == name
            and entry.is_dir(follow_symlinks=False)
            and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
        )
    return []


def _user_folder(base: str) -> str:
    """One of these; it is made when there is none.

    Anybody may take the usual name where all users make files: then it has a random one.

    Raises:
        OSError: it cannot be made.
    """
    usual = os.path.join(base, f"{_PREFIX}{os.geteuid()}")
    try:
        return own_folder(usual)
    except OSError:
        if not os.path.lexists(usual):
            raise
    return own_folder((user_folders(base) or [tempfile.mkdtemp(prefix=f"{os.path.basename(usual)}.", dir=base)])[0])


def _remove_random(mine: str) -> None:
    """Remove a folder with a random name, if nothing is in it."""
    if "." in os.path.basename(mine):
        with contextlib.suppress(OSError):
            os.rmdir(mine)


def _sweep(mine: str) -> None:
    """Remove the folders of this user's worlds whose launchers were killed before they could."""
    with contextlib.suppress(OSError):
        for name in os.listdir(mine):
            if name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _sweep_one(os.path.join(mine, name))


def _sweep_one(folder: str) -> None:
    """Remove a folder if it has our marker and nobody holds it.

    Raises:
        OSError: it has none, or its world is alive.
    """
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        return
    marker = os.path.join(folder, _MARKER)
    fd = os.open(marker, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.lstat(marker)) and os.fstat(fd).st_uid == os.geteuid():
            _remove_marked(folder)
    finally:
        os.close(fd)
