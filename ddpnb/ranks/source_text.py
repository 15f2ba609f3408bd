"""The text of a source file, on the host of the rank that has named it. Standard library only: agents use it."""

from __future__ import annotations

import os
import stat
import time

LIMIT = 1 << 20  # characters of a file

#: a text, and the time of its last change in seconds since 1970
SourceText = tuple[str, float]
NONE: SourceText = ("", 0.0)


def read(path: str) -> SourceText:
    """The text of a file; empty if there is no such file, or it cannot be read."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would not end
            return NONE
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(LIMIT), os.fstat(file.fileno()).st_mtime
    except (OSError, ValueError):
        return NONE


def read_with_age(path: str) -> SourceText:
    """As ``read``, but the time is by how much the last change is later than now: clocks of hosts differ."""
    text, changed = read(path)
    return text, changed - time.time()
