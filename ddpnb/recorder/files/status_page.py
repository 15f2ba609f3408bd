"""Writes the file in which this process leaves how it ends (the format is in ``model.status_file``).

Nothing is written through a descriptor: a program that closes all of them gets its number for a file of its own.
"""

from __future__ import annotations

import ctypes
import json
import mmap
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ddpnb.recorder.files import shared_files
from ddpnb.recording import status_file as layout

_UNBUFFERED = 2  # _IONBF
_BRIEF = ("how", "code", "asked", "at_ns", "exception")
_PLACE = ("file", "line", "function", "user")


class StatusPage:
    """The page of this process. Where there is no room for the file, nobody can read it, and nothing else differs."""

    def __init__(self, path: str) -> None:
        try:
            self._memory = shared_files.mapped(shared_files.create(path, layout.SIZE), layout.SIZE)
        except OSError:
            self._memory = mmap.mmap(-1, layout.SIZE)
        self._memory[: len(layout.MAGIC)] = layout.MAGIC
        self.set_status(layout.NO_STATUS)

    def follow_exit(self) -> None:
        """Let the C library write the status of ``exit()``: no Python code runs then any more."""
        with suppress(AttributeError, OSError):  # a C library without on_exit
            libc = ctypes.CDLL(None)
            on_exit, putw = libc.on_exit, ctypes.cast(libc.putw, ctypes.c_void_p)
            libc.fmemopen.restype = ctypes.c_void_p
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))  # it outlives the interpreter
            address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
            status = ctypes.c_void_p(address + layout.STATUS_AT)
            stream = libc.fmemopen(status, ctypes.c_size_t(layout.STATUS_ROOM), b"w")
            if stream:
                libc.setvbuf(ctypes.c_void_p(stream), None, _UNBUFFERED, ctypes.c_size_t(0))
                self.set_status(layout.NO_STATUS)
                on_exit(putw, ctypes.c_void_p(stream))

    def set_status(self, given: int) -> None:
        """The process ends with this status, in a way that the C library does not see."""
        layout.STATUS.pack_into(self._memory, layout.STATUS_AT, given)

    def write(self, ending: Mapping[str, Any]) -> None:
        """Note how the program ended: as much of it as there is room for."""
        for text in _ever_shorter(ending):
            if len(text) <= layout.LONGEST:
                layout.LENGTH.pack_into(self._memory, layout.LENGTH_AT, 0)
                self._memory[layout.TEXT_AT : layout.TEXT_AT + len(text)] = text
                layout.LENGTH.pack_into(self._memory, layout.LENGTH_AT, len(text))
                return

    def leave(self) -> None:
        """In a forked child, whose end is not that of its parent: from here on it writes to a page of its own."""
        with suppress(OSError):
            shared_files.replace(self._memory, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _ever_shorter(ending: Mapping[str, Any]) -> list[bytes]:
    brief = {key: ending[key] for key in _BRIEF if key in ending}
    frames = [{key: frame[key] for key in _PLACE if key in frame} for frame in ending.get("frames", ())]
    message = str(ending.get("message", ""))
    found: list[bytes] = []
    for length, count in ((1000, 24), (1000, 8), (200, 2), (0, 0)):
        more = {"message": message[:length], "frames": frames[-count:] if count else []}
        with suppress(ValueError, TypeError):
            found.append(json.dumps({**brief, **more}).encode("utf-8", "replace"))
    return found
