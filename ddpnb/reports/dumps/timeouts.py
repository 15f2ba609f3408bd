"""Calls that a time-out ended, where the backend notes an end but not how it came."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from ddpnb.model.calls import Group, runs
from ddpnb.model.collectives import Direction, direction_of
from ddpnb.reports.dumps.columns import COMPLETED, DROPPED, WAITING
from ddpnb.reports.dumps.windows import Own


def reopen(ranks: Mapping[int, Own]) -> list[str]:
    """Mark the last call of a rank as in flight if it cannot have completed: gloo retires what timed out as if it had.

    Returns:
        What was concluded, in sentences.
    """
    silent = {rank: own for rank, own in ranks.items() if any(row.silent for row in own.table.rows)}
    reached = {rank: _reached(own) for rank, own in silent.items()}
    found: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
    left: dict[tuple[Group, int], tuple[int, ...]] = {}  # the members that are behind a call
    for rank, own in silent.items():
        columns = own.columns
        place = next((n for n in range(len(columns.state) - 1, -1, -1) if columns.state[n] != DROPPED), -1)
        if place < 0 or columns.state[place] != COMPLETED:
            continue
        row, seq = own.table.rows[columns.calls[place]], columns.seq[place]
        group = own.groups[row.group]
        if row.message or not row.silent or direction_of(row.signature.op) is not Direction.ALL_TO_ALL:
            continue
        if (group, seq) not in left:
            left[group, seq] = tuple(one for one in group.ranks if one in reached and reached[one].get(group, 0) < seq)
        if left[group, seq]:
            columns.state[place] = WAITING
            found[f"{row.signature.op} #{seq} of {group}", left[group, seq]].append(rank)
    return [
        f"{name} has ended on {_listed(ended)}, but was not called on {_listed(behind)}: a time-out or an error ended it."
        for (name, behind), ended in found.items()
    ]


def _reached(own: Own) -> dict[Group, int]:
    """The number of the last collective in each group."""
    reached: dict[Group, int] = {}
    rows, columns = own.table.rows, own.columns
    for call, seq in zip(columns.calls, columns.seq, strict=True):
        row = rows[call]
        if not row.message:
            group = own.groups[row.group]
            reached[group] = max(reached.get(group, 0), seq)
    return reached


def _listed(ranks: list[int] | tuple[int, ...]) -> str:
    pieces = [str(first) if first == last else f"{first}-{last}" for first, last in runs(sorted(ranks))[:8]]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(pieces)}"
