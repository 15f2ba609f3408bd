"""What is said of ranks whose calls only their stacks show: it is likely at most."""

from __future__ import annotations

from ddpnb.recording import phrases
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stack_calls import POINT_TO_POINT, START
from ddpnb.recording.facts.stack_evidence import different_variables, waiting_lines
from ddpnb.recording.facts.stack_stops import is_nowhere, is_seen, sides_of
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.facts.stops import Awaited, Stop
from ddpnb.recording.findings import FindingType
from ddpnb.recording.rank_state import RankState
from ddpnb.rules.rule import Draft, say

NOT_RECORDED = (
    "No recorder ran in these ranks: this follows from their stacks alone. Which call of its group each is in, for "
    "which ranks it waits and with which sizes is not known."
)


def caveats(snap: Snapshot, stop: Stop, *, compared: bool = False, hosts: bool = True) -> list[str]:
    """The last lines of the evidence: which variables differ, that nothing was recorded, and which ranks are elsewhere."""
    ranks = sorted({*stop.waiting, *stop.gone}) if compared else []
    lines = [*different_variables(stop.standings, ranks), NOT_RECORDED]
    unknown = [rank for rank in range(snap.recording.world_size) if not is_seen(stop.standings.get(rank))]
    if unknown and snap.recording.report is None and hosts:
        lines.append(say("{who} [has|have] no process on this host: attach on the others too.", unknown))
    return lines


def missing_by_stacks(snap: Snapshot, stop: Stop, kind: FindingType) -> Draft | None:
    """Ranks cannot reach the call any more in which others wait."""
    standings, missing, waiting = stop.standings, stop.gone, stop.waiting
    first = standings[waiting[0]]
    at_start = first.function == START
    if at_start != (kind.code == "DDP102"):
        return None
    one, many = _why(stop)
    remedy = "Call it on all ranks or on none: move it out of the condition, or end all ranks together."
    if stop.awaited is Awaited.SILENT:
        who = phrases.ranks(missing)
        theirs = phrases.verb(missing, "its output and its stack", "their output and their stacks")
        remedy += f" What {who} did instead is not in these files: {theirs} (py-spy dump --pid PID) say it."
    return Draft(
        f"{phrases.ranks(missing, True)} did not call the {first.function} that {phrases.ranks(waiting)} "
        f"{phrases.verb(waiting, 'is', 'are')} blocked in{phrases.at(first.site)}: {phrases.verb(missing, one, many)}.",
        missing,
        remedy,
        waiting=waiting,
        evidence=(
            *waiting_lines(standings, waiting),
            *(_instead(standings[rank]) for rank in missing[:8] if not is_nowhere(standings[rank])),
            *caveats(snap, stop, hosts=not at_start),
        ),
        kind=kind,
        certainty="likely",
    )


def _why(stop: Stop) -> tuple[str, str]:
    """Why ranks did not make the call, for one rank and for several."""
    records = [stop.standings[rank] for rank in stop.gone]
    if stop.awaited is Awaited.ENDED:
        return "it has ended", "they have ended"
    if stop.awaited is Awaited.SILENT:
        if any(one.record.mentioned for one in records):
            return "its stack is in none of these files", "their stacks are in none of these files"
        return "it is in none of these files", "they are in none of these files"
    if any(one.state is RankState.COMPUTING or one.reported for one in records):
        return "it was outside it", "they were outside it"
    return "it is past it", "they are past it"


def _instead(standing: Standing) -> str:
    """What a rank that did not make a call has done."""
    ending = standing.record.ending
    if ending is not None:
        return f"Rank {standing.rank} {phrases.ended(ending)}."
    if standing.reported and standing.state is RankState.COMPUTING:
        return f"Rank {standing.rank} was running{phrases.at(standing.site)}."
    still = f" has been inactive for {standing.idle_s:.0f} s" if not standing.reported else " was"
    return (
        f"Rank {standing.rank}{still}{phrases.at(standing.site)}, behind that line in the same function, and no loop "
        "contains both."
    )


def not_started(snap: Snapshot, stop: Stop) -> Draft:
    """Ranks wait for the start of others, of which this host has no process, or a report nothing."""
    standings, waiting = stop.standings, stop.waiting
    here = snap.recording.report is None
    who = say(
        "{who} [has|have] no process on this host" if here else "{who} [is|are] in none of these files", stop.gone
    )
    return Draft(
        f"{phrases.ranks(waiting, True)} {phrases.verb(waiting, 'waits', 'wait')} in {START}"
        f"{phrases.at(standings[waiting[0]].site)}, and {who[:1].lower()}{who[1:]}.",
        remedy="Look whether the other ranks were started, on their hosts, with the same MASTER_ADDR and MASTER_PORT.",
        waiting=waiting,
        evidence=(*waiting_lines(standings, waiting), *caveats(snap, stop, hosts=False)),
        certainty="likely",
    )


def differ_by_stacks(snap: Snapshot, stop: Stop, kind: FindingType) -> Draft | None:
    """Ranks are in different calls; those that are fewer than all others together are named."""
    standings, sides = stop.standings, sides_of(stop)
    p2p = {standings[rank].function for rank in stop.waiting} <= POINT_TO_POINT
    if p2p != (kind.code == "DDP307"):
        return None
    everybody = [rank for side in sides for rank in side]
    odd = [rank for side in sides[1:] for rank in side]
    named = len(odd) < len(sides[0]) and not p2p
    text = phrases.by_side(sides, lambda rank: f"{standings[rank].function}{phrases.at(standings[rank].site)}")
    return Draft(
        f"{phrases.ranks(everybody, True)} {phrases.verb(everybody, 'is', 'are')} blocked in "
        f"{'point-to-point' if p2p else 'different'} calls: {text}.",
        odd if named else (),
        "Every send needs a recv on the other side."
        if p2p
        else "Call the same collectives in the same order on all ranks. If these calls belong to different process "
        "groups, look for the ranks of each group that are in another call.",
        {rank: standings[rank].site for rank in everybody},
        tuple(sides[0]) if named else () if len(sides) > 1 else tuple(everybody),
        () if named or len(sides) < 2 else tuple(map(tuple, sides)),
        (*waiting_lines(standings, everybody), *caveats(snap, stop, compared=not p2p)),
        kind=kind,
        certainty="likely",
    )
