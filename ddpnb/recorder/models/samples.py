"""Writes the samples of this rank: digests and numbers of the models that are followed (the format is in model.samples)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from struct import pack
from types import FrameType
from typing import Any

from ddpnb.recorder.files import shared_files
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.files.clock import now_ns
from ddpnb.recorder.files.locks import is_mine
from ddpnb.recorder.models.tracked_model import EndOfRun, Watched
from ddpnb.recorder.stacks.user_frames import calling_frame, place_of
from ddpnb.recording import samples as layout

_KINDS = {kind: number for number, kind in enumerate(layout.KINDS)}
_PAD = b"\0"


class SampleFile:
    """A ring of rows in shared memory. Rows may be written by any thread.

    Raises:
        OSError: there is no room for the file.
    """

    def __init__(self, path: str) -> None:
        # Readers of the file of the process before keep it.
        self._memory = shared_files.mapped(shared_files.take(path, layout.FILE_SIZE), layout.FILE_SIZE)
        self._memory[:8] = layout.MAGIC
        self._written = self._began = self._run = 0
        self._lock = threading.RLock()

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
        at_ns: int = 0,
    ) -> None:
        """Append a row. ``values`` are doubles, ``hashes`` 32-bit words, ``norms`` as many floats; ``at_ns``: when it was, by default now."""
        length = (layout.ROW_SIZE + len(values) + len(hashes) + len(norms) + 7) & ~7
        if length > layout.RING_SIZE // 4 or is_mine(self._lock):
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
                site, names, at_ns or now_ns(), len(hashes) // 4, len(values) // 8,
            )  # fmt: skip
            at += layout.ROW_SIZE
            for part in (values, hashes, norms):
                self._memory[at : at + len(part)] = part
                at += len(part)
            self._written += length
            self._publish()


def digests(watched: Watched, tensors: Sequence[Any]) -> tuple[int, bytes, bytes]:
    """Log2 of the slices, hashes and norms of these tensors; no hashes where they are not to be had cheaply."""
    log2 = 0 if watched.pace.closely else watched.log2
    # Off the CPU a digest waits for the device: rarely, then, and never at the start.
    if watched.on_cpu or watched.pace.closely or (watched.steps and watched.steps % 64 == 0):
        return log2, *watched.digester.digest(tensors, log2, watched.steps)
    return log2, b"", b""


class Samples:
    """Writes observations of models, each with the user's line that led there."""

    def __init__(self, file: SampleFile, box: BlackBox) -> None:
        self._file = file
        self._box = box
        self._names: dict[Any, int] = {}
        self._sites: dict[tuple[int, int], tuple[int, Any]] = {}
        box.on_new_table.append(self._forget_strings)

    def _forget_strings(self) -> None:
        """The box's table of strings has begun again."""
        self._names.clear()
        self._sites.clear()

    def digest(self, watched: Watched, kind: str, tensors: Sequence[Any], names: int, values: bytes) -> int:
        """Write a sample with the digests of these tensors, where they are to be had cheaply; returns the number of its line."""
        return self.write(watched, kind, names, values, *digests(watched, tensors))

    def write(
        self,
        watched: Watched,
        kind: str,
        names: int,
        values: bytes,
        log2: int = 0,
        hashes: bytes = b"",
        norms: bytes = b"",
        site: int = 0,
    ) -> int:
        """Write a sample; returns the number of its line, ``site`` or the user's that led there."""
        turn, site = watched.turns[kind], site or self.site()
        self._file.write(watched.number, kind, turn, watched.steps, site, names, values, log2, hashes, norms)
        return site

    def earlier(self, watched: Watched, end: EndOfRun) -> None:
        """Write what a model held when an earlier run ended."""
        named = {"names": ["steps"], "run": end.name}
        names = self.name(("earlier", end.name), lambda: named)
        site = self._box.intern(end.place) if end.place else 0
        values = pack("d", end.steps)
        self._file.write(
            watched.number, "earlier", end.run, 0, site, names, values, end.log2, end.hashes, end.norms, end.at_ns
        )

    def later(self, watched: Watched, kind: str, of: str, names: int) -> Callable[[bytes], None]:
        """What writes a sample whose values come later; it belongs to this moment, and to the turn of another kind."""
        turn, steps, site, now = watched.turns[of], watched.steps, self.site(), now_ns()

        def write(values: bytes) -> None:
            self._file.write(watched.number, kind, turn, steps, site, names, values, at_ns=now)

        return write

    def name(self, key: Any, make: Callable[[], dict[str, Any]]) -> int:
        """The number of what a kind of sample tells beside its numbers, which ``make`` says once."""
        number = self._names.get(key)
        if number is None:
            number = self._box.intern(make())
            if len(self._names) < 5000:
                self._names[key] = number
        return number

    def site(self, frame: FrameType | None = None) -> int:
        """The number of the line of a frame, of the user's line that led here if none is given; 0 if there is none."""
        frame = frame or calling_frame(2)
        if frame is None:
            return 0
        known = self._sites.get((id(frame.f_code), frame.f_lasti))
        if known is None:
            code = frame.f_code
            known = (self._box.intern(place_of(frame)), code)
            if len(self._sites) < 5000:
                self._sites[id(code), frame.f_lasti] = known
        return known[0]
