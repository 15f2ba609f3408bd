"""Checks what ``ddpnb.same`` says: the values that were noted are announced with the next collective of each group."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from ddpnb.recorder.collectives import same
from ddpnb.recorder.files.boards import PLACE
from ddpnb.recorder.holds.agreement import announced, read, sentence
from ddpnb.recording.names import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddpnb.recorder.collectives.groups import KnownGroup
    from ddpnb.recorder.holds.breakpoints import Gate

_DIGEST, _HEAD = 8, 16  # bytes of a digest; of those of all names and of all values
_LONGEST = 255  # bytes of one value
_MOST = 64  # values at once


class _Noted(NamedTuple):
    data: bytes  # as announced
    place: str
    number: int  # of the note


class Sameness:
    """What this rank has noted and not announced yet.

    Args:
        gate: the door looks at it while there is something to announce.
        silent: not empty in a forked child.
        fence: whether values are compared: ``raise``, ``warn`` or ``off``.
    """

    def __init__(self, gate: Gate, silent: list[bool], fence: Callable[[], str]) -> None:
        self.pending: dict[str, _Noted] = {}
        gate.announces = self.pending
        self._gate, self._silent, self._fence = gate, silent, fence
        self._number = 0
        self._told: dict[str, int] = {}  # by group: the number of the last note that was announced there

    def open(self) -> None:
        """From here on ``same`` notes values."""
        same.noted[:] = [self._note]

    def new_run(self) -> None:
        """Forget the last run."""
        self.pending.clear()
        self._told.clear()

    def _note(self, value: Any, name: str, caller: FrameType) -> None:
        if self._silent or self._fence() == "off":
            return
        shown = one_line(str(name)[:80])
        data = announced(value, shown)[:_LONGEST]
        if len(self.pending) < _MOST or shown in self.pending:
            self._number += 1
            place = f"{os.path.basename(caller.f_code.co_filename)}:{caller.f_lineno}"
            self.pending[shown] = _Noted(data, place, self._number)
            self._gate.settle()

    def differences(self, group: KnownGroup, seq: int, operation: str, whole: bool) -> str:
        """Announce what is noted with a collective; returns which values differ on which ranks, as sentences.

        Args:
            group: the group of the collective.
            seq: its number there.
            operation: what it is called.
            whole: the group has all ranks.
        """
        last = self._told.get(group.key, 0)
        mine = {name: noted for name, noted in self.pending.items() if noted.number > last}
        if not mine:
            return ""
        self._told[group.key] = self._number
        if whole:
            self.pending.clear()
        shared = self._gate.shared(group, "same")
        if shared is None:
            return ""
        places, ranks = shared
        others = {ranks[member]: data for member, data in places.announce(seq, _packed(mine)) if member < len(ranks)}
        return _sentences(mine, others, operation)


def _packed(noted: Mapping[str, _Noted]) -> bytes:
    """Digests of all names and of all values, then as many of them as there is room for."""
    names, values = blake2b(digest_size=_DIGEST), blake2b(digest_size=_DIGEST)
    parts: list[bytes] = []
    room = PLACE - _HEAD - 1
    for name, one in sorted(noted.items()):
        names.update(name.encode("utf-8", "replace") + b"\n")
        values.update(one.data[:_DIGEST])
        room -= len(one.data) + 1
        if room >= 0:
            parts.append(bytes([len(one.data)]) + one.data)
    return names.digest() + values.digest() + b"".join(parts)


def _unpacked(data: bytes) -> dict[str, bytes]:
    """The values by name that another rank has announced."""
    found: dict[str, bytes] = {}
    at = _HEAD
    while at < len(data) and data[at]:
        one = data[at + 1 : at + 1 + data[at]]
        found[read(one)[0]] = one
        at += 1 + data[at]
    return found


def _sentences(mine: Mapping[str, _Noted], others: Mapping[int, bytes], operation: str) -> str:
    head = _packed(mine)[:_HEAD]
    theirs = {rank: _unpacked(data) for rank, data in others.items()}
    found: list[str] = []
    for name, one in mine.items():
        differing = {
            rank: named[name]
            for rank, named in theirs.items()
            if named.get(name, one.data)[:_DIGEST] != one.data[:_DIGEST]
        }
        if differing:
            found.append(f"{sentence(name, one.data, differing)} (ddpnb.same at {one.place})")
    if not found:  # of very many, those for which there was no room
        hidden = [
            rank
            for rank, data in others.items()
            if data[:_DIGEST] == head[:_DIGEST] and data[_DIGEST:_HEAD] != head[_DIGEST:]
        ]
        found += [f"one of {len(mine)} values before {operation} differs on rank {rank}" for rank in hidden[:1]]
    return "; ".join(found)


def warn(what: str) -> None:
    """Print a difference, as the fence prints a mismatch."""
    with suppress(OSError, ValueError, AttributeError):
        print(f"ddpnb: same: {what}", file=sys.stderr, flush=True)
