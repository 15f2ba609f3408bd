"""The calls of each rank, from dumps and from logs; and what of them can be compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ddpnb.model.calls import NO_SITE, UNNAMED, Call, CallState, Signature
from ddpnb.model.recording import RankRecord
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
        calls.append(
            Call(
                0,
                group,
                one.seq,
                one.signature,
                one.site,
                one.state,
                peer=one.peer,
                entered_ns=one.at_ns,
                done_ns=one.done_ns,
            )
        )
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
    if not any((call.group.key, call.seq) in places for call in record.calls):
        return record
    calls = tuple(
        replace(call, signature=replace(call.signature, agreed=agreed(call.signature, known[place])))
        if (place := (call.group.key, call.seq)) in places
        else call
        for call in record.calls
    )
    return replace(record, calls=calls)
