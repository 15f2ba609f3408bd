"""Arrivals: when the last rank arrived at each collective, for thousands of calls at once.

A *place* is one collective of one group (or one message), known by a small number. From the arrival of
a rank at a place to the arrival of the last one it waits; from then on the collective is under way.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_RANK = 0  # the place of calls that wait for no rank, e.g. a non-root rank in a reduce
UNKNOWN_RANKS = 1  # the place of calls whose peers will never be known
_FIRST = 2
_ALL = -1  # all expected ranks of a place must arrive; otherwise the only rank that must

Numbers = NDArray[Any]


class Arrivals:
    """Which ranks have arrived at which place. Taking a call again changes nothing."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._ranks: list[tuple[int, ...]] = [(), ()]
        self._count = np.zeros(1024, np.int64)
        self._needed = np.ones(1024, np.int64)
        self._root = np.full(1024, _ALL, np.int64)
        self._group = np.full(1024, -1, np.int64)
        self._seq = np.zeros(1024, np.int64)
        self._agreed = np.zeros(1024, np.int64)
        self._last = np.full(1024, -np.inf)
        self._known = np.zeros(1024, bool)
        self._known[NO_RANK] = True
        self._arrived: dict[int, NDArray[np.bool_]] = {}
        self._open: dict[int, set[int]] = {}
        self._reached: dict[int, int] = {}
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
        expected_ranks: tuple[int, ...],
        root: int | None = None,
        group: int = -1,
        seq: int = 0,
        agreed: int = 0,
    ) -> int:
        """The place with this key, created if needed.

        Args:
            key: what all calls of it have in common.
            expected_ranks: the ranks that take part.
            root: the one rank for which all wait; None if all wait for all.
            group: the number of the group; -1 for a message, which is in no sequence.
            seq: its number in the group.
            agreed: a number of what all ranks must agree on.
        """
        found = self._numbers.get(key)
        if found is not None:
            return found
        place = self._size
        if place == len(self._count):
            self._grow()
        self._numbers[key] = place
        self._ranks.append(expected_ranks)
        self._needed[place] = len(expected_ranks) if root is None else 1
        self._root[place] = _ALL if root is None else root
        self._group[place], self._seq[place], self._agreed[place] = group, seq, agreed
        self._open.setdefault(group, set()).add(place)
        self._known[place] = group >= 0 and seq < self._reached.get(group, 0)
        self._size += 1
        return place

    def arrive(self, rank: int, places: Numbers, at: Numbers, seen: Numbers) -> NDArray[np.int64]:
        """Take calls of a rank; returns the places that changed.

        Args:
            rank: whose calls they are.
            places: of each call.
            at: seconds at which it was made; NaN when unknown.
            seen: whether a peer will see it: not if it is held or was refused.
        """
        arrived = self._arrived.get(rank)
        if arrived is None or len(arrived) < len(self._count):
            grown = np.zeros(len(self._count), np.bool_)
            if arrived is not None:
                grown[: len(arrived)] = arrived
            arrived = self._arrived[rank] = grown
        root = self._root[places]
        counts = (places >= _FIRST) & ((root == _ALL) | (root == rank))
        gone = np.unique(places[counts & ~seen & arrived[places]])
        arrived[gone] = False
        self._count[gone] -= 1
        new = counts & seen & ~arrived[places]
        which, first = np.unique(places[new], return_index=True)
        arrived[which] = True
        self._count[which] += 1
        self._last[which] = np.fmax(self._last[which], at[new][first])
        touched = np.concatenate((gone, which))
        before = self._known[touched]
        self._known[touched] = self._count[touched] >= self._needed[touched]
        changed = touched[before | self._known[touched]]
        implied = self._imply(which[self._known[which]])
        return np.concatenate((changed, implied)).astype(np.int64)

    def _imply(self, known: Numbers) -> NDArray[np.int64]:
        """A rank that arrived at a collective of a group has arrived at all earlier ones, recorded or not."""
        found: list[int] = []
        for place in known.tolist():
            self._open.get(int(self._group[place]), set()).discard(place)
        lasts: dict[int, int] = {}
        for place in known[(self._group[known] >= 0) & (self._root[known] == _ALL)].tolist():
            group = int(self._group[place])
            lasts[group] = max(lasts.get(group, 0), int(self._seq[place]))
        for group, seq in lasts.items():
            if seq > self._reached.get(group, 0):
                self._reached[group] = seq
                earlier = [place for place in self._open[group] if self._seq[place] < seq]
                self._open[group].difference_update(earlier)
                found += earlier
        self._known[found] = True
        return np.array(found, np.int64)

    def agreed(self, places: Numbers) -> NDArray[np.int64]:
        """What all ranks must agree on at these places."""
        return self._agreed[places]

    def met(self, places: Numbers | slice = slice(None)) -> NDArray[np.float64]:
        """When the last awaited rank arrived, in seconds; NaN while unknown."""
        return np.where(self._known[: self._size][places], self._last[: self._size][places], np.nan)

    def missing_ranks(self, place: int) -> tuple[int, ...]:
        if place < _FIRST or self._known[place]:
            return ()
        needed = self._ranks[place] if self._root[place] == _ALL else (int(self._root[place]),)
        arrived = self._arrived
        return tuple(
            rank for rank in needed if rank not in arrived or place >= len(arrived[rank]) or not arrived[rank][place]
        )

    def forget(self, keep: Numbers) -> NDArray[np.int64]:
        """Drop all places except these and the open ones; returns the new number of each old one."""
        stay = np.zeros(self._size, bool)
        stay[:_FIRST] = True
        stay[keep] = True
        stay |= ~self._known[: self._size] & (self._count[: self._size] > 0)
        old = np.flatnonzero(stay)
        new = np.full(self._size, UNKNOWN_RANKS, np.int64)
        new[old] = np.arange(len(old))
        size = max(1024, 2 * len(old))
        for name in _COLUMNS:
            column = getattr(self, name)
            kept = np.zeros(size, column.dtype)
            kept[: len(old)] = column[old]
            setattr(self, name, kept)
        self._last[len(old) :] = -np.inf
        for rank, arrived in self._arrived.items():
            kept = np.zeros(size, np.bool_)
            there = old[old < len(arrived)]
            kept[: len(there)] = arrived[there]
            self._arrived[rank] = kept
        self._numbers = {key: int(new[place]) for key, place in self._numbers.items() if stay[place]}
        self._ranks = [self._ranks[place] for place in old]
        self._open = {group: {int(new[p]) for p in places if stay[p]} for group, places in self._open.items()}
        self._size = len(old)
        return new

    def _grow(self) -> None:
        for name in _COLUMNS:
            column = getattr(self, name)
            grown = np.zeros(2 * len(column), column.dtype)
            grown[: len(column)] = column
            setattr(self, name, grown)
        self._last[self._size :] = -np.inf


_COLUMNS = ("_count", "_needed", "_root", "_group", "_seq", "_agreed", "_last", "_known")
