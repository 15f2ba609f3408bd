"""Files that hold what users may not show to others: values of variables, output, answers.

Whatever the umask, what is made here can be read by its user alone. Output files of a command are written atomically, and
checked before the work starts.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import cast

from ddpnb.errors import CannotWrite, UsageError
from ddpnb.recording import arguments
from ddpnb.texts import did_you_mean

_HINT = "Choose another file, in a folder that exists."
_LISTED = 2000  # files of a folder among which a misspelled name is looked for
_MOST_LINKS = 40  # as the kernel follows
_DESCRIPTORS = ("/proc", "/dev/fd")  # links there stand for open files: to replace one would break /dev/stdout


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a path leads, links followed.

    Attributes:
        path: the file itself.
        special: it is written to as it is, since a file in its place would break it: a device, a pipe, an open file.
        pipe: it is a named pipe.
        descriptor: of an open file of this process (``/dev/stdout``, ``/dev/fd/3``), else None.
    """

    path: str
    special: bool = False
    pipe: bool = False
    descriptor: int | None = None


def private(path: str, flags: int) -> int:
    """For the argument ``opener`` of ``open()``: a file that it makes is for its user alone."""
    return os.open(path, flags, 0o600)


def write_private(path: str, content: str | bytes) -> None:
    """Write a file that another process waits for, whole, for this user alone.

    Raises:
        OSError: there is no room.
    """
    with open(f"{path}.part", "wb", opener=private) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    os.replace(f"{path}.part", path)


def make_folder(path: str) -> None:
    """Make a folder for this user alone, and those above it that are missing; one that is there stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    if not os.path.isdir(path):
        parent = os.path.dirname(os.path.abspath(path))
        if parent != path:
            make_folder(parent)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise


def own_folder(path: str) -> str:
    """This folder, which belongs to this user alone; it is made when it is not there.

    Raises:
        OSError: what has its name is no folder of this user, or it cannot be made.
    """
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


def similar(path: object, otherwise: str) -> str:
    """A question that names files beside a path that does not exist, of which it may be a misspelling; else ``otherwise``."""
    folder, name = os.path.split(os.fsdecode(cast("str", path)) if not isinstance(path, int) else "")
    try:
        with os.scandir(folder or ".") as entries:
            names = [entry.name for entry in islice(entries, _LISTED)]
    except (OSError, ValueError):
        return otherwise
    return did_you_mean(name, (one for one in names if one != name)) or otherwise


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check that a file can be written. Leaves nothing behind.

    A named pipe is not opened: its reader may come later, and would take the check for the end.

    Raises:
        UsageError: it is a folder, its folder does not exist, or it cannot be written there.
    """
    _check_path(path)
    try:
        place = _find(path)
        if place.pipe:
            if not os.access(place.path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        elif place.special:
            os.close(_open_special(place))
        elif os.path.isdir(place.path):
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        else:
            _probe(os.path.dirname(place.path))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"cannot write to {_named(path)}: {_reason(error)}.", _HINT) from None


def check_folder(path: str | os.PathLike[str]) -> None:
    """Check that a folder can be created and written to. Leaves nothing behind.

    Raises:
        UsageError: something else has its name, or nothing can be written there.
    """
    _check_path(path)
    try:
        folder = os.path.abspath(os.fsdecode(path))
        while not os.path.isdir(folder):
            if os.path.lexists(folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            _check_name(folder)
            folder = os.path.dirname(folder)
        _probe(folder)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"cannot write to {_named(path)}: {_reason(error)}.", "Choose another folder.") from None


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file all at once: a reader never sees half of it. A device or a pipe is written to as it is.

    Raises:
        UsageError: it is no path.
        CannotWrite: the disk is full, the folder is missing, or the pipe has no reader; an existing file is kept.
    """
    write_parts(path, (content.encode() if isinstance(content, str) else content,))


def write_parts(path: str | os.PathLike[str], parts: Iterable[bytes]) -> None:
    """The same of a file that is made part by part: what making a part raises leaves the earlier file as it was.

    Raises:
        UsageError, CannotWrite: as ``write_whole``.
    """
    _check_path(path)
    try:
        place = _find(path)
        if place.special:
            with open(_open_special(place), "wb") as file:
                file.writelines(parts)
        else:
            _replace(place.path, parts)
    except UsageError:  # of what makes the parts
        raise
    except (OSError, ValueError, TypeError) as error:
        raise CannotWrite(
            f"cannot write to {_named(path)}: {_reason(error)}.", "Make room, or choose another file."
        ) from None


def remove_earlier(path: str | os.PathLike[str]) -> None:
    """Remove the file of an earlier command: it must not be taken for the result of this one.

    A device or a pipe stays. Call it after ``check_writable()``.
    """
    with contextlib.suppress(OSError, ValueError):
        place = _find(path)
        if not place.special:
            os.unlink(place.path)


def _check_path(path: object) -> None:
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):  # a number would be an open file of ours
        raise UsageError(f"cannot write to {arguments.short(path)}: not a path.", "Give the path of a file.")


def _find(path: str | os.PathLike[str]) -> _Place:
    """Follow a path to what it names, which need not exist.

    Raises:
        OSError: it does not resolve: through a file, a loop of links, a name that is too long.
    """
    _check_name(path)
    own = f"/proc/{os.getpid()}/fd"
    place = os.fsdecode(path)
    for _ in range(_MOST_LINKS):
        head, name = os.path.split(place)
        folder = os.path.realpath(head)  # of "" the working directory
        place = os.path.join(folder, name)
        if any(os.path.commonpath([folder, base]) == base for base in _DESCRIPTORS):
            descriptor = int(name) if folder in (own, "/dev/fd") and name.isascii() and name.isdigit() else None
            return _Place(place, special=True, descriptor=descriptor)
        if not os.path.islink(place):
            break
        place = os.path.join(folder, os.readlink(place))
    else:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    mode = os.stat(place).st_mode if os.path.exists(place) else stat.S_IFREG
    return _Place(place, special=not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)), pipe=stat.S_ISFIFO(mode))


def _check_name(path: str | os.PathLike[str]) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.stat(path)


def _open_special(place: _Place) -> int:
    """A descriptor that writes to a device, a pipe or an open file; without waiting for the reader of a pipe.

    An open file of this process is duplicated, not opened again: both descriptors then share one position.
    """
    if place.descriptor is not None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        if fcntl.fcntl(place.descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "it is open for reading only")
        return fcntl.fcntl(place.descriptor, fcntl.F_DUPFD_CLOEXEC, 0)
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(place.path, flags)
    except OSError as error:
        if error.errno == errno.ENXIO and place.pipe:
            raise OSError(errno.ENXIO, "no process reads from this pipe") from None
        raise
    os.set_blocking(descriptor, True)
    return descriptor


def _replace(path: str, parts: Iterable[bytes]) -> None:
    descriptor, partial = _create_in(os.path.dirname(path))
    try:
        with open(descriptor, "wb") as file:
            file.writelines(parts)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def _probe(folder: str) -> None:
    descriptor, partial = _create_in(folder)
    os.close(descriptor)
    os.unlink(partial)


def _create_in(folder: str) -> tuple[int, str]:
    """Create a new file with a unique name, so that it may be removed."""
    path = os.path.join(folder, f".ddpnb-{secrets.token_hex(8)}.part")
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), path


def _named(path: str | os.PathLike[str]) -> str:
    return repr(os.fspath(path))


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
