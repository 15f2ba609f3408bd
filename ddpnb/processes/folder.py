"""The folders of a world, one in memory and one for output, swept when their launcher was killed.

What ranks write through mappings at every call lies in memory where there is room (``/dev/shm``, or the folder that
DDPNB_SHM names), what they print below TMPDIR. In both places the worlds of a user share a folder of that user. A world
is alive as long as somebody holds the lock of its marker: a process number would say nothing to another container that
shares the folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator

from ddpnb.errors import LaunchError
from ddpnb.model import blackbox, samples
from ddpnb.recorder import shared_files

_SHARED = "DDPNB_SHM"
_USUAL = "/dev/shm"
_MARKER = ".ddpnb-world"
_PREFIX = "ddpnb-"
# What is left to the data loaders of the training, which need shared memory themselves.
_SPARE = 256 << 20
_PER_RANK = blackbox.BOX_SIZE + samples.FILE_SIZE
_OF_RUN = re.compile(r"run(\d{1,12})(?:-rank\d+\.json(?:\.part)?)?")  # logs, endings
_SHARED_OF_RUN = re.compile(
    r"rank\d+-run(\d{1,12})-model\d+\.json(?:\.part)?|fence-(\d{1,12})-\w+|rank\d+\.box\.child(\d{1,12})"
)

_locks: set[int] = set()


def _drop_locks() -> None:
    """A forked child shares the locks of its parent's worlds: it must not hold them when the parent is dead."""
    while _locks:
        with contextlib.suppress(OSError):
            os.close(_locks.pop())


os.register_at_fork(after_in_child=_drop_locks)


class _Folder:
    """One folder that is locked for as long as this process lives, or until it is removed.

    Raises:
        OSError: it cannot be made there.
    """

    def __init__(self, base: str) -> None:
        mine = _of_user(base)
        _sweep(mine)
        self.path = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=mine)
        self._lock = _mark(self.path)

    def remove(self) -> None:
        """Remove it with all that it holds. Safe to call twice."""
        _remove_marked(self.path)
        lock, self._lock = self._lock, -1
        if lock in _locks:
            _locks.discard(lock)
            os.close(lock)


class Folders:
    """The folders of one world; only the process that made them changes them.

    Args:
        size: number of ranks.

    Raises:
        LaunchError: there is no room, or no place that belongs to this user alone.
    """

    def __init__(self, size: int) -> None:
        self._pid = os.getpid()
        self._made: list[_Folder] = []
        try:
            self.memory = self._with_room(size)
            try:
                output = _Folder(tempfile.gettempdir())
                self._made.append(output)
                self.output = output.path
            except OSError:
                self.output = self.memory
        except BaseException:
            self.remove()
            raise

    def _with_room(self, size: int) -> str:
        shared = _shared_place()
        troubles: dict[str, str] = {}
        for base, spare in ((shared, _SPARE), (None, 0), (shared, 0)):
            try:
                base = base or tempfile.gettempdir()
                free = shutil.disk_usage(base).free
                if free < size * _PER_RANK + spare:
                    raise OSError(errno.ENOSPC, f"{free >> 20} MB are free", base)
                folder = _Folder(base)
                self._made.append(folder)
                self.memory = folder.path
                with self._allocated(range(size)) as adopt:
                    adopt()
            except OSError as error:
                troubles[base or "TMPDIR"] = _words(error)
                self.remove()
            else:
                return folder.path
        reasons = "; ".join(f"{base}: {trouble}" for base, trouble in troubles.items())
        raise LaunchError(
            f"no folder has enough space for the shared files of {size} ranks ({size * _PER_RANK >> 20} MB): {reasons}.",
            "Give a container more shared memory (docker run --shm-size=2g), or set TMPDIR to a folder of yours with "
            "enough space.",
        )

    @contextlib.contextmanager
    def _allocated(self, ranks: Iterable[int]) -> Iterator[Callable[[], None]]:
        """New files for these ranks, beside those that they have; yields what puts them in place.

        All are allocated or none; those that were not put in place are removed in the end.

        Raises:
            OSError: there is no room for them.
        """
        sizes = {
            os.path.join(self.memory, f"rank{rank}.{kind}"): size
            for rank in ranks
            for kind, size in (("box", blackbox.BOX_SIZE), ("samples", samples.FILE_SIZE))
        }

        waiting = list(sizes)

        def adopt() -> None:
            while waiting:
                shared_files.adopt(waiting[-1])
                waiting.pop()

        try:
            for path, size in sizes.items():
                os.close(shared_files.prepare(path, size))
            yield adopt
        finally:
            for path in waiting:
                shared_files.discard(path)

    @contextlib.contextmanager
    def reserved(self, ranks: Iterable[int]) -> Iterator[Callable[[], None]]:
        """Fresh files for new processes of these ranks; yields what puts them in place, once the old ones have ended.

        Who reads the files of earlier processes keeps them.

        Raises:
            LaunchError: there is no room for them.
        """
        with contextlib.ExitStack() as stack:
            try:
                adopt = stack.enter_context(self._allocated(ranks))
            except OSError as error:
                raise LaunchError(
                    f"no space for the shared files of another process in {self.memory}: {_words(error)}.",
                    f"No rank was changed. Free {_PER_RANK >> 20} MB there for each rank, and try again.",
                ) from None
            yield adopt

    def log_dir(self, run: int) -> str:
        """Where the ranks' output of a run lies."""
        return os.path.join(self.output, f"run{run}")

    def ending(self, run: int, rank: int) -> str:
        """The file in which a rank says how a run ended."""
        return os.path.join(self.output, f"run{run}-rank{rank}.json")

    def forget(self, run: int) -> None:
        """Remove the files of a run that no rank is in any more."""
        if os.getpid() != self._pid:  # a forked child has dropped its copy of the run
            return
        for folder, pattern in ((self.output, _OF_RUN), (self.memory, _SHARED_OF_RUN)):
            with contextlib.suppress(OSError):
                for name in os.listdir(folder):
                    match = pattern.fullmatch(name)
                    if match and int(next(filter(None, match.groups()))) == run:
                        _remove(os.path.join(folder, name))

    def remove(self) -> None:
        """Remove both folders."""
        if os.getpid() == self._pid:
            while self._made:
                self._made[-1].remove()
                self._made.pop()


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _shared_place() -> str:
    """Where files in memory lie; not relative to the working directory, which ranks change.

    Raises:
        LaunchError: the place that was asked for does not exist.
    """
    wanted = os.environ.get(_SHARED)
    if not wanted:
        return _USUAL
    if not os.path.isdir(wanted):
        raise LaunchError(
            f"{_SHARED}={wanted} is not a folder.", f"Create it, or unset {_SHARED} to use {_USUAL} or TMPDIR."
        )
    return os.path.abspath(wanted)


def _remove_marked(folder: str) -> None:
    """Remove a world's folder. Its marker goes last: what an interrupt, or a file that stays, leaves is swept later."""
    marker = os.path.join(folder, _MARKER)
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name != _MARKER:
                _remove(os.path.join(folder, name))
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


def _words(error: OSError) -> str:
    return error.strerror or str(error)


def _of_user(base: str) -> str:
    """The folder in ``base`` that belongs to this user alone.

    Raises:
        OSError: what has its name is no folder of this user, or it cannot be made.
    """
    path = os.path.join(base, f"{_PREFIX}{os.geteuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise OSError(error.errno, f"{path} is not a folder of yours ({error.strerror})", path) from None
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            raise OSError(errno.EPERM, f"{path} belongs to another user", path)
        os.fchmod(fd, 0o700)
    finally:
        os.close(fd)
    return path


def _mark(folder: str) -> int:
    """Mark a folder as that of a living world; returns the descriptor that holds the lock.

    Nobody sees the marker before it is locked. Where files cannot be locked there is none (-1), and nobody sweeps.
    """
    unlocked = os.path.join(folder, f"{_MARKER}.part")
    fd = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return -1
    os.rename(unlocked, os.path.join(folder, _MARKER))
    _locks.add(fd)
    return fd


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
