"""Calls that files show only as enqueued, of ranks that are ahead of others: these wait.

NCCL's log and its RAS output say what a rank has enqueued, not what it finished. A collective that another member of the
group had not enqueued when the file ended was not finished.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from ddpnb.model.calls import CallState
from ddpnb.model.recording import RankRecord


def with_waits(records: Mapping[int, RankRecord]) -> dict[int, RankRecord]:
    """The records with the first call of each rank that another member of its group had not enqueued as waiting.

    Args:
        records: by rank; of a group with any call that is known to wait or to be complete nothing changes.

    Returns:
        The same records, with other states of calls.
    """
    known = {
        call.group.key
        for record in records.values()
        for call in record.calls
        if call.seq and call.state is not CallState.ISSUED
    }
    last: dict[str, dict[int, int]] = defaultdict(dict)
    for rank, record in records.items():
        for key, number in record.reached.items():
            last[key][rank] = max(last[key].get(rank, 0), number)
        for call in record.calls:
            if call.seq and call.group.key not in known:
                last[call.group.key][rank] = max(last[call.group.key].get(rank, 0), call.seq)
    slowest = {key: min(numbers.values()) for key, numbers in last.items() if len(numbers) > 1 and key not in known}
    return {rank: _waiting(record, slowest) for rank, record in records.items()}


def _waiting(record: RankRecord, slowest: Mapping[str, int]) -> RankRecord:
    first: dict[str, int] = {}
    for call in record.calls if slowest else ():
        key = call.group.key
        if call.seq > slowest.get(key, call.seq):
            first[key] = min(first.get(key, call.seq), call.seq)
    if not first:
        return record
    calls = tuple(
        replace(call, state=CallState.WAITING) if call.seq and first.get(call.group.key) == call.seq else call
        for call in record.calls
    )
    return replace(record, calls=calls)
