"""DDP306 on a device: each rank has queued the call that another one waits in, behind a call that it waits in itself.

NCCL runs behind the program: every member has called both collectives, and none of them is missing.
"""

from __future__ import annotations

from dataclasses import replace

from ddpnb.diagnosis.hangs.cycles import ranks_in_a_cycle
from ddpnb.diagnosis.hangs.group_order import cycle_of_groups
from ddpnb.diagnosis.hangs.rank_state import Standing
from ddpnb.diagnosis.hangs.wait_for_graph import Wait
from ddpnb.model.calls import Call, CallState
from ddpnb.model.collectives import call_in
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording


def find(recording: Recording, standings: dict[int, Standing]) -> list[Finding]:
    """The cycle over several groups, if the queues of the ranks show one."""
    calls = {rank: one.call for rank, one in standings.items() if one.call is not None and one.call.seq}
    if len({call.group.key for call in calls.values()}) < 2:
        return []
    waits: dict[int, Wait] = {}
    behind: dict[tuple[str, int], frozenset[int]] = {}
    for rank, call in calls.items():
        place = call.group.key, call.seq
        if place not in behind:
            members = (member for member in call.group.ranks if member in calls)
            behind[place] = frozenset(one for one in members if _is_queued(recording, one, calls[one], call))
        waits[rank] = Wait(standings[rank], behind[place], behind[place])
    cycle = ranks_in_a_cycle(waits, calls)
    return [replace(cycle_of_groups(standings, calls, cycle), certainty="likely")] if cycle else []


def _is_queued(recording: Recording, rank: int, waits_in: Call, other: Call) -> bool:
    """Whether a rank has issued another group's call after the one that it waits in."""
    if waits_in.group.key == other.group.key:
        return False
    call = call_in(recording.ranks[rank], other.group, other.seq)
    return call is not None and call.state is CallState.ISSUED and call.number > waits_in.number
