"""Files that a command leaves behind: written whole or not at all, and refused before the work where they cannot be."""

from __future__ import annotations

import contextlib
import os
import stat

from ddpnb import arguments
from ddpnb.errors import CannotWrite, UsageError


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a file that could not be written in the end. Leaves nothing behind.

    Raises:
        UsageError: it is a folder, its folder does not exist, or it cannot be written there.
    """
    hint = "Choose another file, in a folder that exists."
    _check_path(path)
    try:
        if _is_special(path):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            return
        if os.path.isdir(path):
            raise UsageError(f"cannot write to {_named(path)}: it is a folder.", hint)
        partial = _partial(path)
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644))
        os.unlink(partial)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"cannot write to {_named(path)}: {_reason(error)}.", hint) from None


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a file all at once: a reader never sees half of it. A device or a pipe is written to as it is.

    Raises:
        UsageError: it is no path.
        CannotWrite: the disk is full, or the folder has gone; what was there before stays.
    """
    _check_path(path)
    partial = None
    try:
        if _is_special(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return
        partial = _partial(path)
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(partial, path)
    except (OSError, ValueError, TypeError) as error:
        raise CannotWrite(
            f"cannot write to {_named(path)}: {_reason(error)}.", "Make room, or choose another file."
        ) from None
    finally:
        if partial is not None:
            remove_file(partial)


def remove_file(path: str | os.PathLike[str]) -> None:
    """Remove what could not be written to its end. A device or a pipe stays."""
    with contextlib.suppress(OSError, ValueError):
        if not _is_special(path):
            os.unlink(path)


def _check_path(path: object) -> None:
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):  # a number would be an open file of ours
        raise UsageError(f"cannot write to {arguments.short(path)}: that is no path.", "Give the path of a file.")


def _partial(path: str | os.PathLike[str]) -> str:
    return f"{os.fsdecode(path)}.part"


def _is_special(path: str | os.PathLike[str]) -> bool:
    """Whether it is there and neither a file nor a folder: to put a file in the place of a device would break it."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _named(path: str | os.PathLike[str]) -> str:
    return repr(os.fspath(path))


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
