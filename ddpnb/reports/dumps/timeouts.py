"""Calls that a time-out ended, where the backend notes an end but not how it came."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ddpnb.recording.calls import Group, runs
from ddpnb.recording.collectives import Direction, direction_of
from ddpnb.reports.dumps.entries import COMPLETED, WAITING
from ddpnb.reports.dumps.tables import Dump


def reopen(dumps: Sequence[Dump]) -> list[str]:
    """Mark the last call of a rank as in flight if it cannot have completed: gloo retires what timed out as if it had.

    Returns:
        What was concluded, in sentences.
    """
    silent = [dump for dump in dumps if any(row.silent for row in dump.table.rows)]
    reached = {dump.rank: _reached(dump) for dump in silent}
    found: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
    left: dict[tuple[Group, int], tuple[int, ...]] = {}  # the members that are behind a call
    for dump in silent:
        columns, present = dump.columns, dump.present
        place = present[-1] if len(present) else -1
        if place < 0 or columns.state[place] != COMPLETED:
            continue
        row, seq = dump.table.rows[columns.calls[place]], int(columns.seq[place])
        group = dump.groups[row.group]
        if row.message or not row.silent or direction_of(row.signature.op) is not Direction.ALL_TO_ALL:
            continue
        if (group, seq) not in left:
            left[group, seq] = tuple(one for one in group.ranks if one in reached and reached[one].get(group, 0) < seq)
        if left[group, seq]:
            columns.state[place] = WAITING
            found[f"{row.signature.op} #{seq} of {group}", left[group, seq]].append(dump.rank)
    return [
        f"{name} has ended on {_listed(ended)}, but was not called on {_listed(behind)}: a time-out or an error ended it."
        for (name, behind), ended in found.items()
    ]


def _reached(dump: Dump) -> dict[Group, int]:
    """The number of the last collective in each group."""
    calls = [row.group if not row.message else -1 for row in dump.table.rows]
    reached: dict[Group, int] = {}
    for call, seq in zip(dump.columns.calls.tolist(), dump.columns.seq.tolist(), strict=True):
        if calls[call] >= 0:
            group = dump.groups[calls[call]]
            reached[group] = max(reached.get(group, 0), seq)
    return reached


def _listed(ranks: Sequence[int]) -> str:
    pieces = [str(first) if first == last else f"{first}-{last}" for first, last in runs(sorted(ranks))[:8]]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(pieces)}"
