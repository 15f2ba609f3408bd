"""Of a report: ranks that others waited for, and that made no call, raised nothing and did not end as far as it says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ddpnb.facts.places import where
from ddpnb.facts.standings import Standing
from ddpnb.facts.waits import Wait
from ddpnb.model import phrases
from ddpnb.model.calls import UNNAMED, Call, Signature
from ddpnb.model.findings import Finding
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.rules.hangs.p2p_deadlock import P2P_DEADLOCK
from ddpnb.rules.hangs.skipped_call import COLLECTIVE_MISSING
from ddpnb.texts import shortened

_FEW = 8  # ranks with an evidence line of their own


def explain(
    recording: Recording, standings: Mapping[int, Standing], waits: Mapping[int, Wait], waiting: Sequence[int]
) -> Finding | None:
    """DDP301, or DDP307 for a send or a receive: the ranks that did not make the call in which others wait.

    Ranks whose calls of that group the report holds are at fault. Otherwise it is one of those that do not occur in it;
    they are named only where they are fewer than those that wait.
    """
    chosen = _first(standings, waits, waiting)
    if chosen is None:
        return None
    call, inside, missing = chosen
    seen = [rank for rank in missing if _calls_known(recording.ranks.get(rank), call)]
    unseen = sorted(set(missing) - set(seen))
    few = len(unseen) < len(inside) or (len(unseen) == 1 and _members_known(recording, call))
    culprits = seen or (unseen if few else [])
    lost = _overwritten(recording, call, seen, inside[0])
    own = standings[inside[0]].call
    call = lost if lost is not None else call
    report = recording.report
    waited_s = report.waited_s if report is not None else 0.0
    who = phrases.ranks(culprits or unseen)
    summary = (
        f"{phrases.ranks(culprits, True)} did not call the {_named(call)} that {phrases.ranks(inside)} "
        f"{phrases.verb(inside, 'was', 'were')} blocked in{phrases.at(standings[inside[0]].site)}."
        if culprits
        else f"{phrases.ranks(inside, True)} {phrases.verb(inside, 'was', 'were')} blocked in {_named(call)}"
        f"{phrases.at(standings[inside[0]].site)}: these files show no call of {who}."
    )
    if lost is not None and own is not None:
        summary = (
            f"{phrases.ranks(culprits, True)} did not call {_named(call)} of {call.group}: {phrases.ranks(inside)} "
            f"{phrases.verb(inside, 'was', 'were')} blocked in {_named(own)}{phrases.at(standings[inside[0]].site)}, a later one."
        )
    # Those that wait elsewhere for a rank that waits here.
    rest = sorted(set(waiting) - set(inside) - set(culprits))
    evidence = [
        f"{phrases.ranks(inside, True)} waited in {phrases.in_call(own or call)}"
        + (f" for {waited_s:.0f} s" if waited_s >= 1 else f" for {waited_s:.2g} s" if waited_s else "")
        + f"{phrases.at(standings[inside[0]].site)}."
        + (
            ""
            if lost is None or own is None
            else f" These files show none of the calls #{call.seq} to #{own.seq - 1}."
            if recording.ranks[inside[0]].partial
            else f" Its dump begins there: #{call.seq} to #{own.seq - 1} were overwritten."
        ),
        *(_last(recording.ranks[rank], call) for rank in seen[:_FEW]),
    ]
    for ranks, how in (
        ([rank for rank in unseen if _mentioned(recording, rank)], "in these files, but no call of this group"),
        ([rank for rank in unseen if not _mentioned(recording, rank)], "in none of these files"),
    ):
        if ranks:
            evidence.append(f"{phrases.ranks(ranks, True)} {phrases.verb(ranks, 'occurs', 'occur')} {how}.")
    evidence += [
        phrases.sentence(f"Rank {rank} lost its connection to another: {shortened(str(ending), 200)}")
        for rank in unseen[:_FEW]
        if rank in recording.ranks and (ending := recording.ranks[rank].ending) is not None
    ]
    evidence += [
        f"Rank {rank} was in {phrases.in_call(other)}{phrases.at(standings[rank].site)}."
        for rank in rest[:_FEW]
        if (other := standings[rank].call) is not None
    ]
    what = "send" if call.op != "send" else "receive"
    if call.is_p2p:
        remedy = f"Match it with a {what} of the same peer and tag on {who}."
    elif culprits:
        has = phrases.verb(culprits, "has", "have")
        remedy = (
            "Call it on all ranks or on none: look at the condition or the loop around it, with the values that "
            f"{who} {has}."
        )
    elif len(unseen) == 1:
        remedy = f"Find out whether it is {who} or another rank that did not call it."
    else:
        remedy = f"Find out which of {who} did not call it: on the others it timed out too."
    theirs = phrases.verb(culprits or unseen, "its output and its stack", "their output and their stacks")
    collect = f"What {who} did instead is not in these files: {theirs} (py-spy dump --pid PID) say it."
    return Finding(
        P2P_DEADLOCK if call.is_p2p else COLLECTIVE_MISSING,
        summary,
        tuple(culprits),
        (*inside, *rest),
        call,
        where(standings, [*culprits, *inside, *rest]),
        tuple(evidence),
        f"{remedy} {collect}",
        certainty="timed" if seen and waited_s and lost is None else "likely",
    )


def _members_known(recording: Recording, call: Call) -> bool:
    """Whether no further rank can be the one that did not make the call."""
    report = recording.report
    if report is None or call.is_p2p:
        return True
    default = len(call.group.ranks) == recording.world_size
    return report.world_size_known if default else call.group.key not in report.observed


def _overwritten(recording: Recording, call: Call, seen: Sequence[int], rank: int) -> Call | None:
    """The first collective that the ranks at fault did not call, where the dumps of the others begin behind it.

    Its operation is that of all calls that the dump of a waiting rank still holds of the group, if they have one.
    """
    record = recording.ranks[rank]
    made = [one for one in record.calls if one.group.key == call.group.key and one.seq]
    if not seen or call.is_p2p or not record.forgotten or not made:
        return None
    first = min(_reached(recording.ranks[one], call) for one in seen) + 1
    if first >= min(one.seq for one in made):
        return None
    ops = {one.op for one in made}
    return replace(call, seq=first, signature=Signature(ops.pop() if len(ops) == 1 else UNNAMED))


def _reached(record: RankRecord, call: Call) -> int:
    """The number of the last collective of a call's group that a rank is known to have called."""
    numbers = (one.seq for one in record.calls if one.group.key == call.group.key)
    return max(record.reached.get(call.group.key, 0), max(numbers, default=0))


def _first(
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


def _mentioned(recording: Recording, rank: int) -> bool:
    return rank in recording.ranks and recording.ranks[rank].mentioned


def _call(standings: Mapping[int, Standing], rank: int) -> Call:
    call = standings[rank].call
    assert call is not None
    return call


def _named(call: Call) -> str:
    return call.title if call.is_p2p else f"{call.op} #{call.seq}" if call.op != UNNAMED else f"collective #{call.seq}"


def _calls_known(record: RankRecord | None, call: Call) -> bool:
    """Whether the report holds calls of this rank in the group, so that one that is not there was not made."""
    if record is None:
        return False
    return call.group.key in record.reached or any(one.group.key == call.group.key for one in record.calls)


def _last(record: RankRecord, call: Call) -> str:
    """How far a rank came in the group of a call."""
    last = next((one for one in reversed(record.calls) if one.group.key == call.group.key), None)
    number = _reached(record, call)
    if last is None or number > last.seq > 0:
        return f"Rank {record.rank} called no collective of {call.group} after #{number}."
    return f"Rank {record.rank}'s last call in {call.group} was {last.title}{phrases.at(last.site)}."
