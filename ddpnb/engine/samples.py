"""Writes the file of samples of this rank (the format is in model.samples)."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time

from ddpnb.model import samples as layout

_KINDS = {kind: number for number, kind in enumerate(layout.KINDS)}
_PAD = b"\0"


class SampleFile:
    """A ring of rows in shared memory. Rows may be written by any thread."""

    def __init__(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # whoever has the file of the process before mapped keeps it
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.ftruncate(fd, layout.FILE_SIZE)
            self._memory = mmap.mmap(fd, layout.FILE_SIZE)
        finally:
            os.close(fd)
        self._memory[:8] = layout.MAGIC
        self._written = self._began = self._run = 0
        self._lock = threading.Lock()

    def new_run(self, run: int) -> None:
        with self._lock:
            self._began, self._run = self._written, run
            self._publish()

    def _publish(self) -> None:
        layout.WRITTEN.pack_into(self._memory, layout.WRITTEN_AT, self._written, self._began, self._run)

    def write(
        self,
        model: int,
        kind: str,
        turn: int,
        step: int,
        site: int,
        names: int,
        values: bytes = b"",
        log2: int = 0,
        hashes: bytes = b"",
        norms: bytes = b"",
    ) -> None:
        """Append a row. ``values`` are doubles, ``hashes`` 32-bit words, ``norms`` as many floats."""
        length = (layout.ROW_SIZE + len(values) + len(hashes) + len(norms) + 7) & ~7
        if length > layout.RING_SIZE // 4:
            return
        with self._lock:
            place = self._written % layout.RING_SIZE
            if place + length > layout.RING_SIZE:
                left = layout.RING_SIZE - place
                at = layout.HEADER_SIZE + place
                self._memory[at : at + 8] = left.to_bytes(4, "little") + layout.STAMP.to_bytes(4, "little")
                self._memory[at + 8 : at + min(left, layout.ROW_SIZE)] = _PAD * (min(left, layout.ROW_SIZE) - 8)
                self._written += left
                place = 0
            at = layout.HEADER_SIZE + place
            layout.ROW.pack_into(
                self._memory, at, length, layout.STAMP, model, _KINDS[kind], log2, turn & 0xFFFFFFFF, step & 0xFFFFFFFF,
                site, names, time.monotonic_ns(), len(hashes) // 4, len(values) // 8,
            )  # fmt: skip
            at += layout.ROW_SIZE
            for part in (values, hashes, norms):
                self._memory[at : at + len(part)] = part
                at += len(part)
            self._written += length
            self._publish()
