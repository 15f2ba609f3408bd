"""The file in which the process of a rank leaves how it ends: one page that is allocated when it starts.

So a full disk does not lose the end of a training. Layout (little-endian): the magic, the status that ``exit()`` of the C
library was given, and the end of the program as JSON with its length before it, which is written last.

Nothing in it is trusted.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from typing import Any, cast

from ddpnb.recording.names import UNDECODABLE

MAGIC = b"ddpnbEN1"
SIZE = 4096
STATUS, STATUS_AT = struct.Struct("<i"), 8
STATUS_ROOM = 8  # the C library may write zeros behind the status
NO_STATUS = -(1 << 31)
LENGTH, LENGTH_AT = struct.Struct("<I"), STATUS_AT + STATUS_ROOM
TEXT_AT = LENGTH_AT + LENGTH.size
LONGEST = SIZE - TEXT_AT


@dataclass(frozen=True, slots=True)
class Left:
    """What a process has left of its end."""

    given: int | None = None  # to exit(), of which the system keeps one byte
    ending: dict[str, Any] | None = None  # as in ``rank0.end.json``, as far as there is room

    @property
    def status(self) -> int | None:
        """Its exit status; None: it has not called ``exit()``."""
        return None if self.given is None else self.given & 0xFF


def path_of(folder: str, rank: int) -> str:
    """The file of a rank."""
    return os.path.join(folder, f"rank{rank}.status")


def read(folder: str, rank: int) -> Left:
    """What the process of this rank has left; nothing if there is no such file."""
    try:
        fd = os.open(path_of(folder, rank), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return decoded(os.read(fd, SIZE))
        finally:
            os.close(fd)
    except OSError:
        return Left()


def decoded(data: bytes) -> Left:
    """The content of such a file."""
    if len(data) == 1:  # as earlier versions wrote it
        return Left(data[0])
    if len(data) < SIZE or not data.startswith(MAGIC):
        return Left()
    (given,), (length,) = STATUS.unpack_from(data, STATUS_AT), LENGTH.unpack_from(data, LENGTH_AT)
    ending: object = None
    if 0 < length <= LONGEST:
        try:
            ending = json.loads(data[TEXT_AT : TEXT_AT + length])
        except UNDECODABLE:
            pass
    return Left(
        None if given == NO_STATUS else given, cast("dict[str, Any]", ending) if isinstance(ending, dict) else None
    )
