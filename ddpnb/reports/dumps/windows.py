"""Which calls of very many ranks are read: those around the first difference between the ranks of a group, and the last."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpnb.recording.calls import Group
from ddpnb.reports.dumps.entries import COMPLETED
from ddpnb.reports.dumps.tables import Dump, Ints

ALL = 65_536  # entries: so many are all read, whatever the ranks (32 of them with rings of 2,000)
AROUND, LAST = 64, 64


def kept(dumps: Sequence[Dump]) -> list[Ints]:
    """The places of the entries of each rank that are read, in order."""
    if sum(len(dump.columns.calls) for dump in dumps) <= ALL:
        return [dump.present for dump in dumps]
    differing = _first_differences(dumps)
    return [_around(dump, differing) for dump in dumps]


def _first_differences(dumps: Sequence[Dump]) -> dict[Group, set[int]]:
    """Per group the first number at which members made different calls, and the first with calls at different lines.

    Rings hold different numbers on each rank: only what several ranks hold is compared. Ranks with the same table, numbers
    and groups are compared once.
    """
    alike: dict[object, Dump] = {}
    for dump in dumps:
        groups = tuple(group.key for group in dump.groups)
        alike.setdefault((id(dump.table), dump.columns.calls.tobytes(), dump.columns.seq.tobytes(), groups), dump)
    made: dict[Group, tuple[dict[int, str], dict[int, object]]] = {}
    first: dict[Group, dict[str, int]] = {group: {} for dump in dumps for group in dump.groups}
    for dump in alike.values():
        known = [made.setdefault(group, ({}, {})) for group in dump.groups]
        facts = [(*known[row.group], dump.groups[row.group], row.signature.agreed, row.site) for row in dump.table.rows]
        places = np.flatnonzero(dump.made(lambda row: not row.message))
        for call, seq in zip(dump.columns.calls[places].tolist(), dump.columns.seq[places].tolist(), strict=True):
            calls, lines, group, key, site = facts[call]
            if calls.setdefault(seq, key) != key:
                first[group]["call"] = min(seq, first[group].get("call", seq))
            elif lines.setdefault(seq, site) != site:
                first[group]["line"] = min(seq, first[group].get("line", seq))
    return {group: set(numbers.values()) for group, numbers in first.items()}


def _around(dump: Dump, differing: dict[Group, set[int]]) -> Ints:
    """The wanted entries of a rank: the last ones, those that are not complete, and those around differences."""
    columns, present = dump.columns, dump.present
    wanted = columns.state[present] != COMPLETED
    wanted[max(0, len(present) - LAST) :] = True
    odd = np.full((len(dump.groups) + 1, 2), -1)  # the last of them: of no group
    for number, group in enumerate(dump.groups):
        odd[number, : len(differing[group])] = sorted(differing[group])
    groups = np.array([-1 if row.message else row.group for row in dump.table.rows], int)[columns.calls[present]]
    seq = columns.seq[present]
    for turn in np.flatnonzero((odd[groups] == seq[:, None]).any(axis=1) & (seq >= 0)):
        wanted[max(0, turn - AROUND) : turn + AROUND + 1] = True
    return present[wanted]
