"""Ranks that are blocked forever: the causes that the wait-for graph can prove."""

from __future__ import annotations

from ddpnb.facts.cycles import connected_parts
from ddpnb.facts.init_facts import address_of
from ddpnb.facts.standings import Standing
from ddpnb.facts.waits import Wait
from ddpnb.model.findings import Finding
from ddpnb.model.rank_state import RankState
from ddpnb.model.recording import Recording
from ddpnb.rules.hangs import blocked, ended_ranks, group_order, new_groups, p2p_deadlock, silent_ranks, startup
from ddpnb.rules.hangs.endings import is_consequence


def find(
    recording: Recording,
    standings: dict[int, Standing],
    waits: dict[int, Wait],
    stuck: frozenset[int],
    patience: float,
) -> list[Finding]:
    """One finding per independent part of the wait-for graph."""
    found = []
    for part in connected_parts(waits, stuck):
        waiting = sorted(part & stuck)
        # Awaited ranks that may still make the call are not at fault.
        gone = [
            rank
            for rank in sorted(part - stuck)
            if rank not in standings or standings[rank].state is RankState.ENDED or standings[rank].expired(patience)
        ]
        finding = _explain(recording, standings, waits, waiting, gone)
        if finding is not None:
            found.append(finding)
    return found


def _explain(
    recording: Recording,
    standings: dict[int, Standing],
    waits: dict[int, Wait],
    waiting: list[int],
    gone: list[int],
) -> Finding | None:
    present = [rank for rank in gone if rank in standings]
    starting = [rank for rank in waiting if standings[rank].state is RankState.STARTING]
    claims = startup.wrong_claims(standings, starting) if starting else None
    if claims is not None:
        return claims
    if starting and (absent := [rank for rank in gone if rank not in standings]):
        return startup.world_too_large(standings, starting, absent)
    elsewhere = [
        rank for rank in present if standings[rank].elsewhere or standings[rank].state is RankState.UNRESPONSIVE
    ]
    if elsewhere:
        return blocked.explain(standings, waiting, elsewhere)
    ended = [rank for rank in present if standings[rank].state is RankState.ENDED]
    if starting and len({address_of(standings[rank].record) for rank in starting}) > 1:
        return startup.apart(standings, starting)
    if starting and ended:
        return startup.never_joined(recording, standings, starting, ended)
    grouping = [rank for rank in waiting if standings[rank].state is RankState.CREATING_GROUP]
    if grouping:
        return new_groups.not_made(recording, standings, waits, grouping, waiting)
    calls = {rank: call for rank in waiting if (call := standings[rank].call) is not None}
    if recording.report is not None and gone and all(is_consequence(recording.ranks[rank]) for rank in ended):
        return silent_ranks.explain(recording, standings, waits, waiting)
    if any(call.is_p2p for call in calls.values()):
        return p2p_deadlock.explain(recording, standings, waits, calls, ended)
    if ended:
        return ended_ranks.explain(recording, standings, calls, ended)
    return group_order.explain(recording, standings, waits, calls)
