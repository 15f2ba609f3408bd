"""What a report shows of calls, of which it may miss some."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ddpnb.recording import phrases
from ddpnb.recording.calls import UNNAMED, Call, Signature
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.facts.waits import Wait
from ddpnb.recording.recording import RankRecord, Recording


def members_known(recording: Recording, call: Call) -> bool:
    """Whether no further rank can be the one that did not make the call."""
    report = recording.report
    if report is None or call.is_p2p:
        return True
    default = len(call.group.ranks) == recording.world_size
    return report.world_size_known if default else call.group.key not in report.observed


def claims_absence(recording: Recording, call: Call, waiting: Sequence[int]) -> bool:
    """Whether a rank that says nothing in a report would have been seen there, had it made the call in which others wait.

    Several ranks wrote into it (of a message there is only one other), and it is not known to be a part of what they wrote.
    """
    report = recording.report
    return report is None or (not report.excerpt and not report.cut and (call.is_p2p or len(waiting) > 1))


def overwritten(recording: Recording, call: Call, seen: Sequence[int], rank: int) -> Call | None:
    """The first collective that the ranks at fault did not call, where the dumps of the others begin behind it.

    Its operation is that of all calls that the dump of a waiting rank still holds of the group, if they have one.
    """
    record = recording.ranks[rank]
    made = [one for one in record.calls if one.group.key == call.group.key and one.seq]
    if not seen or call.is_p2p or not record.forgotten or not made:
        return None
    first = min(reached(recording.ranks[one], call) for one in seen) + 1
    if first >= min(one.seq for one in made):
        return None
    ops = {one.op for one in made}
    return replace(call, seq=first, signature=Signature(ops.pop() if len(ops) == 1 else UNNAMED))


def reached(record: RankRecord, call: Call) -> int:
    """The number of the last collective of a call's group that a rank is known to have called."""
    numbers = (one.seq for one in record.calls if one.group.key == call.group.key)
    return max(record.reached.get(call.group.key, 0), max(numbers, default=0))


def first_call_of(
    standings: Mapping[int, Standing], waits: Mapping[int, Wait], waiting: Sequence[int]
) -> tuple[Call, list[int], list[int]] | None:
    """The call to begin with, the ranks that wait in it, and those that are missing: that which began first of those that lack a rank in no call."""
    absent = {rank for missing in {wait.missing for wait in waits.values()} for rank in missing if rank not in waits}
    inside: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for rank in waiting:
        call = standings[rank].call
        if call is not None and not waits[rank].missing.isdisjoint(absent):
            inside[call.group.key, call.seq, call.peer].append(rank)
    if not inside:
        return None
    ranks = min(inside.values(), key=lambda those: (min(began(_call(standings, r)) for r in those), -len(those)))
    call = next((c for r in ranks if (c := _call(standings, r)).op != UNNAMED), _call(standings, ranks[0]))
    missing = sorted(waits[ranks[0]].missing & absent)
    return call, sorted(ranks), missing


def began(call: Call) -> tuple[int, int]:
    """The order of calls of several ranks, as far as it is known."""
    return call.entered_ns, call.seq


def _call(standings: Mapping[int, Standing], rank: int) -> Call:
    call = standings[rank].call
    assert call is not None
    return call


def calls_known(record: RankRecord | None, call: Call) -> bool:
    """Whether the report holds calls of this rank in the group, so that one that is not there was not made."""
    if record is None:
        return False
    return call.group.key in record.reached or any(one.group.key == call.group.key for one in record.calls)


def last_call(record: RankRecord, call: Call) -> str:
    """How far a rank came in the group of a call."""
    last = next((one for one in reversed(record.calls) if one.group.key == call.group.key), None)
    number = reached(record, call)
    if last is None or number > last.seq > 0:
        return f"Rank {record.rank} called no collective of {call.group} after #{number}."
    return f"Rank {record.rank}'s last call in {call.group} was {last.title}{phrases.at(last.site)}."
