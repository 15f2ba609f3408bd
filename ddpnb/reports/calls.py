"""The calls of each rank, from dumps and from logs; and what of them can be compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ddpnb.recording.calls import NO_SITE, UNNAMED, Call, CallState, Signature
from ddpnb.recording.recording import RankRecord
from ddpnb.reports.facts import CallSeen, Progress
from ddpnb.reports.groups import Groups
from ddpnb.reports.operations import KNOWN, agreed, known_of


def calls_of(
    dumped: Sequence[Call], seen: Sequence[CallSeen], progress: Sequence[Progress], groups: Groups
) -> list[Call]:
    """The calls of a dump, with what logs say of them; or those that logs alone say.

    Args:
        dumped: the calls of the rank's dump.
        seen: those that other files show.
        progress: how far the rank is in its groups: it waits in the first call that it has not completed.
        groups: of the job.
    """
    calls = list(dumped)
    places = {(call.group.key, call.seq): place for place, call in enumerate(calls if seen else ()) if call.seq}
    for one in seen:
        group = groups.of(one.group)
        place = places.get((group.key, one.seq)) if one.seq else None
        if place is not None:
            calls[place] = _joined(calls[place], one)
            continue
        if one.seq:
            places[group.key, one.seq] = len(calls)
        calls.append(Call(0, group, one.seq, one.signature, one.site, one.state, peer=one.peer))
    calls += _waits_behind(progress, groups, calls)
    if len(calls) == len(dumped):
        return calls  # those of a dump have numbers
    calls.sort(key=lambda call: (call.entered_ns, call.seq))
    return [replace(call, number=number) for number, call in enumerate(calls)]


def _joined(call: Call, seen: CallSeen) -> Call:
    """A call that two files contain: a log says that it timed out, a dump what it was."""
    signature = seen.signature if call.signature.op == UNNAMED else call.signature
    waits = seen.state is CallState.WAITING and call.state is not CallState.COMPLETED
    state = CallState.WAITING if waits else max(call.state, seen.state) if call.state.in_flight else call.state
    site = call.site if call.site != NO_SITE else seen.site
    return replace(call, signature=signature, state=state, site=site)


def _waits_behind(progress: Sequence[Progress], groups: Groups, calls: Sequence[Call]) -> list[Call]:
    """The calls that ranks wait in which no file contains: the first one behind the last that was completed."""
    missing: list[Call] = []
    for one in progress:
        group = groups.of(one.group)
        seq = one.completed + 1
        if not 0 < seq <= one.enqueued:
            continue
        own = [call for call in calls if call.group.key == group.key and call.seq]
        if any(call.seq <= seq and (call.state.in_flight or call.seq == seq) for call in own):
            continue
        missing.append(Call(0, group, seq, Signature(UNNAMED), NO_SITE, CallState.WAITING))
    return missing


def with_agreed(records: Mapping[int, RankRecord], places: Collection[tuple[str, int]]) -> dict[int, RankRecord]:
    """The records with what all ranks must have alike of the calls of some collectives.

    A watchdog's line gives a number of elements, a dump shapes and dtypes, NCCL's log the reduce operation: of one
    collective only that is compared which is known of all its calls.

    Args:
        records: by rank.
        places: of the collectives of which calls come from logs: key of the group, number.
    """
    if not places:
        return dict(records)
    known: dict[tuple[str, int], frozenset[str]] = defaultdict(lambda: KNOWN)
    for record in records.values():
        for call in record.calls:
            if (place := (call.group.key, call.seq)) in places and call.op != UNNAMED:
                known[place] &= known_of(call.signature)
    return {rank: _with_agreed(record, places, known) for rank, record in records.items()}


def _with_agreed(
    record: RankRecord, places: Collection[tuple[str, int]], known: Mapping[tuple[str, int], frozenset[str]]
) -> RankRecord:
    def compared(call: Call) -> Call:
        place = call.group.key, call.seq
        if place not in places:
            return call
        return replace(call, signature=replace(call.signature, agreed=agreed(call.signature, known[place])))

    return replace(record, calls=tuple(map(compared, record.calls)))


def with_waits(records: Mapping[int, RankRecord]) -> dict[int, RankRecord]:
    """The records with the first call of each rank that another member of its group had not enqueued as waiting.

    NCCL's log and its RAS output say what a rank has enqueued, not what it finished. A collective that another member of the
    group had not enqueued when the file ended was not finished.

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
