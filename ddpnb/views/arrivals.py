"""Arrivals: when the last rank arrived at each collective, for many thousand calls at once.

A *place* is one collective of one group (or one message), known by a small number. From the arrival of
a rank at a place to the arrival of the last one it waits; from then on the collective is under way.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOBODY = 0  # the place of calls that wait for no rank, e.g. a non-root rank in a reduce
NEVER = 1  # the place of calls whose peers will never be known
_FIRST = 2
EVERYBODY = -1  # all members of a place must arrive; otherwise the only rank that must

Numbers = NDArray[Any]


class Arrivals:
    """Which ranks have arrived at which place. Taking a call again changes nothing."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._members: list[tuple[int, ...]] = [(), ()]
        self._count = np.zeros(1024, np.int64)
        self._need = np.ones(1024, np.int64)
        self._decides = np.full(1024, EVERYBODY, np.int64)
        self._line = np.full(1024, -1, np.int64)
        self._seq = np.zeros(1024, np.int64)
        self._agreed = np.zeros(1024, np.int64)
        self._latest = np.full(1024, -np.inf)
        self._known = np.zeros(1024, bool)
        self._known[NOBODY] = True
        self._came: dict[int, NDArray[np.bool_]] = {}
        self._open: dict[int, set[int]] = {}
        self._upto: dict[int, int] = {}
        self._size = _FIRST

    def __len__(self) -> int:
        return self._size

    def places(self, keys: Sequence[Hashable]) -> list[int | None]:
        """The places with these keys; None for unknown keys."""
        get = self._numbers.get
        return [get(key) for key in keys]

    def place(
        self,
        key: Hashable,
        members: tuple[int, ...],
        decides: int = EVERYBODY,
        line: int = -1,
        seq: int = 0,
        agreed: int = 0,
    ) -> int:
        """The place with this key, created if needed.

        Args:
            key: what all calls of it have in common.
            members: the ranks that take part.
            decides: the one rank for which all wait, if it is one.
            line: the group, if its collectives are made one after the other, in the order of ``seq``.
            seq: its number in the line.
            agreed: a number of what all ranks must give alike there.
        """
        found = self._numbers.get(key)
        if found is not None:
            return found
        place = self._size
        if place == len(self._count):
            self._grow()
        self._numbers[key] = place
        self._members.append(members)
        self._need[place] = len(members) if decides == EVERYBODY else 1
        self._decides[place], self._line[place], self._seq[place], self._agreed[place] = decides, line, seq, agreed
        self._open.setdefault(line, set()).add(place)
        self._known[place] = line >= 0 and seq < self._upto.get(line, 0)
        self._size += 1
        return place

    def come(self, rank: int, places: Numbers, at: Numbers, here: Numbers) -> NDArray[np.int64]:
        """Take calls of a rank; returns the places that changed.

        Args:
            rank: whose calls they are.
            places: of each call.
            at: seconds at which it was made; NaN when unknown.
            here: whether a peer will see it: not if it is held or was refused.
        """
        came = self._came.get(rank)
        if came is None or len(came) < len(self._count):
            grown = np.zeros(len(self._count), np.bool_)
            if came is not None:
                grown[: len(came)] = came
            came = self._came[rank] = grown
        decides = self._decides[places]
        counts = (places >= _FIRST) & ((decides == EVERYBODY) | (decides == rank))
        gone = np.unique(places[counts & ~here & came[places]])
        came[gone] = False
        self._count[gone] -= 1
        new = counts & here & ~came[places]
        which, first = np.unique(places[new], return_index=True)
        came[which] = True
        self._count[which] += 1
        self._latest[which] = np.fmax(self._latest[which], at[new][first])
        touched = np.concatenate((gone, which))
        before = self._known[touched]
        self._known[touched] = self._count[touched] >= self._need[touched]
        changed = touched[before | self._known[touched]]
        implied = self._imply(which[self._known[which]])
        return np.concatenate((changed, implied)).astype(np.int64)

    def _imply(self, known: Numbers) -> NDArray[np.int64]:
        """A rank that arrived at a collective of a group has arrived at all earlier ones, recorded or not."""
        found: list[int] = []
        for place in known.tolist():
            self._open.get(int(self._line[place]), set()).discard(place)
        lasts: dict[int, int] = {}
        for place in known[(self._line[known] >= 0) & (self._decides[known] == EVERYBODY)].tolist():
            line = int(self._line[place])
            lasts[line] = max(lasts.get(line, 0), int(self._seq[place]))
        for line, seq in lasts.items():
            if seq > self._upto.get(line, 0):
                self._upto[line] = seq
                earlier = [place for place in self._open[line] if self._seq[place] < seq]
                self._open[line].difference_update(earlier)
                found += earlier
        self._known[found] = True
        return np.array(found, np.int64)

    def agreed(self, places: Numbers) -> NDArray[np.int64]:
        """What all ranks must agree on at these places."""
        return self._agreed[places]

    def met(self, places: Numbers | slice = slice(None)) -> NDArray[np.float64]:
        """When the last awaited rank arrived, in seconds; NaN while unknown."""
        return np.where(self._known[: self._size][places], self._latest[: self._size][places], np.nan)

    def missing(self, place: int) -> tuple[int, ...]:
        """The missing ranks."""
        if place < _FIRST or self._known[place]:
            return ()
        members = self._members[place] if self._decides[place] == EVERYBODY else (int(self._decides[place]),)
        return tuple(
            rank for rank in members if rank not in self._came or not self._came[rank][place : place + 1].any()
        )

    def forget(self, keep: Numbers) -> NDArray[np.int64]:
        """Drop all places except these and the open ones; returns the new number of each old one."""
        stay = np.zeros(self._size, bool)
        stay[:_FIRST] = True
        stay[keep] = True
        stay |= ~self._known[: self._size] & (self._count[: self._size] > 0)
        old = np.flatnonzero(stay)
        new = np.full(self._size, NEVER, np.int64)
        new[old] = np.arange(len(old))
        size = max(1024, 2 * len(old))
        for name in _COLUMNS:
            column = getattr(self, name)
            kept = np.zeros(size, column.dtype)
            kept[: len(old)] = column[old]
            setattr(self, name, kept)
        self._latest[len(old) :] = -np.inf
        for rank, came in self._came.items():
            kept = np.zeros(size, np.bool_)
            there = old[old < len(came)]
            kept[: len(there)] = came[there]
            self._came[rank] = kept
        self._numbers = {key: int(new[place]) for key, place in self._numbers.items() if stay[place]}
        self._members = [self._members[place] for place in old]
        self._open = {line: {int(new[p]) for p in places if stay[p]} for line, places in self._open.items()}
        self._size = len(old)
        return new

    def _grow(self) -> None:
        for name in _COLUMNS:
            column = getattr(self, name)
            grown = np.zeros(2 * len(column), column.dtype)
            grown[: len(column)] = column
            setattr(self, name, grown)
        self._latest[self._size :] = -np.inf


_COLUMNS = ("_count", "_need", "_decides", "_line", "_seq", "_agreed", "_latest", "_known")
