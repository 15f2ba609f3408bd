"""The environment of this process as others see it (``/proc/PID/environ``): what it was started with. Standard library only.

What ``os.environ`` sets lies elsewhere in memory. A forked process that others find by its variables writes these over one
that its parent was started with to have room for them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

_NAME = "DDPNB_ROOM"
#: of a process that forks others
ROOM = {_NAME: "0" * 640}


def room() -> int | None:
    """Where the room for variables lies in memory; None: this process was started without."""
    strings = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    wanted = f"{_NAME}={ROOM[_NAME]}".encode()
    index = 0
    while address := strings[index]:
        if ctypes.string_at(address) == wanted:
            return address
        index += 1
    return None


def show(place: int | None, variables: Mapping[str, str]) -> None:
    """Write these variables into the room, if they fit."""
    text = b"".join(f"{name}={value}".encode() + b"\0" for name, value in variables.items())
    text += b"_="  # the rest is another variable: a block has no empty one
    if place is not None and len(text) <= len(f"{_NAME}={ROOM[_NAME]}".encode()):
        ctypes.memmove(place, text, len(text))
