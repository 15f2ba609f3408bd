"""Which calls of very many ranks are read: those around the first difference between the ranks of a group, and the last."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ddpnb.model.calls import Group
from ddpnb.reports.dumps.columns import COMPLETED, DROPPED
from ddpnb.reports.dumps.tables import Table

ALL = 65_536  # entries: so many are all read, whatever the ranks (32 of them with rings of 2,000)
AROUND, LAST = 64, 64
_SEARCHED = 32  # numbers that are searched for one by one
_OPEN = re.compile(b"[^%c%c]" % (DROPPED, COMPLETED))  # states of entries


@dataclass(frozen=True, slots=True)
class Columns:
    """What the entries of one rank hold, in their order (``columns.columns``)."""

    calls: array[int]
    seq: array[int]
    number: array[int]
    created: array[int]
    done: array[int]
    thread: array[int]
    state: array[int]


@dataclass(frozen=True, slots=True)
class Own:
    """One rank: its table, its columns, and the groups of its table."""

    table: Table
    columns: Columns
    groups: Sequence[Group]


def kept(ranks: Sequence[Own]) -> list[Iterable[int]]:
    """The entries of each rank that are read, in order."""
    if sum(len(own.columns.calls) for own in ranks) <= ALL:
        return [_present(own) for own in ranks]
    differing = _first_differences(ranks)
    return [_around(own, differing) for own in ranks]


def _present(own: Own) -> Sequence[int]:
    state = own.columns.state
    return [place for place, one in enumerate(state) if one != DROPPED] if DROPPED in state else range(len(state))


def _first_differences(ranks: Sequence[Own]) -> dict[Group, set[int]]:
    """Per group the first number at which members made different calls, and the first with calls at different lines.

    Rings hold different numbers on each rank: only what several ranks hold is compared. Ranks with the same table, numbers
    and groups are compared once.
    """
    seen: set[tuple[int, bytes, bytes, tuple[str, ...]]] = set()
    made: dict[Group, tuple[dict[int, str], dict[int, object], list[int]]] = {}
    for own in ranks:
        columns, rows = own.columns, own.table.rows
        alike = (
            id(own.table),
            columns.calls.tobytes(),
            columns.seq.tobytes(),
            tuple(group.key for group in own.groups),
        )
        if alike in seen:
            continue
        seen.add(alike)
        known = [made.setdefault(group, ({}, {}, [-1, -1])) for group in own.groups]
        facts = [(row.message, *known[row.group], row.signature.agreed, row.site) for row in rows]
        for call, seq, state in zip(columns.calls, columns.seq, columns.state, strict=True):
            message, calls, lines, first, key, site = facts[call]
            if message or not state:  # 0: DROPPED
                continue
            if calls.setdefault(seq, key) != key:
                _lower(first, 0, seq)
            elif lines.setdefault(seq, site) != site:
                _lower(first, 1, seq)
    return {group: {seq for seq in first if seq >= 0} for group, (_, _, first) in made.items()}


def _lower(first: list[int], kind: int, seq: int) -> None:
    first[kind] = seq if first[kind] < 0 else min(first[kind], seq)


def _around(own: Own, differing: dict[Group, set[int]]) -> list[int]:
    """The wanted entries of a rank. Very many are looked through, and few of them are wanted: none is looked at by itself."""
    columns = own.columns
    present = _present(own)
    wanted = set(range(max(0, len(present) - LAST), len(present)))
    wanted.update(bisect_left(present, one.start()) for one in _OPEN.finditer(columns.state.tobytes()))
    firsts = [differing.get(group, set[int]()) for group in own.groups]
    for place in _places(columns.seq, set[int]().union(*firsts)):
        row = own.table.rows[columns.calls[place]]
        if not row.message and columns.seq[place] in firsts[row.group] and columns.state[place] != DROPPED:
            turn = bisect_left(present, place)
            wanted.update(range(max(0, turn - AROUND), min(len(present), turn + AROUND + 1)))
    return [present[turn] for turn in sorted(wanted)]


def _places(column: array[int], values: set[int]) -> Iterator[int]:
    """Where a column has one of these values."""
    if len(values) > _SEARCHED:
        yield from (place for place, value in enumerate(column) if value in values)
        return
    for value in values:
        place = -1
        with suppress(ValueError):
            while True:
                place = column.index(value, place + 1)
                yield place
