"""The environment of this process as others see it (``/proc/PID/environ``): what it was started with. Standard library only.

What ``os.environ`` sets lies elsewhere in memory. A forked process that others find by its variables writes these over what
its parent was started with: the parent's own have room for them.
"""

from __future__ import annotations

import ctypes


def place_of(name: str, value: str) -> int | None:
    """Where a variable with this value, which this process was started with, lies in memory."""
    strings = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    variable = f"{name}={value}".encode()
    index = 0
    while address := strings[index]:
        if ctypes.string_at(address) == variable:
            return address
        index += 1
    return None


def show(place: int | None, name: str, value: str, room: str) -> None:
    """Write a variable into the place of one with the value ``room``, if that is longer."""
    text = f"{name}={value}".encode() + b"\0_="  # the rest is another variable: a block has no empty one
    if place is not None and len(text) <= len(f"{name}={room}".encode()):
        ctypes.memmove(place, text, len(text))
