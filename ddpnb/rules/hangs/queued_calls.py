"""Calls in the queue of a device, which runs behind the program.

DDP306 there: each rank has queued the call that another one waits in, behind a call that it waits in itself. Every member has
called both collectives, and none of them is missing.
"""

from __future__ import annotations

from dataclasses import replace

from ddpnb.facts.cycles import ranks_in_a_cycle
from ddpnb.facts.standings import Standing
from ddpnb.facts.waits import Wait
from ddpnb.model import phrases
from ddpnb.model.calls import Call, CallState, Site
from ddpnb.model.collectives import call_in
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording
from ddpnb.rules.hangs.group_order import cycle_of_groups


def find(recording: Recording, standings: dict[int, Standing], patience: float = 0.0) -> list[Finding]:
    """The cycle over several groups, if the queues of ranks show one whose main threads have not moved for so many seconds.

    It is not proven: kernels of several communicators may also run side by side.
    """
    still = [(rank, one) for rank, one in standings.items() if one.record.process.still_s >= patience]
    calls = {rank: one.call for rank, one in still if one.call is not None and one.call.seq}
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


_SHOWN = 4  # places


def with_hosts(standings: dict[int, Standing], finding: Finding) -> Finding:
    """The finding, with the places where the hosts of its waiting ranks are: behind the calls that their devices wait in."""
    there: dict[tuple[int, Site], list[int]] = {}
    for rank in sorted(finding.waiting):
        standing = standings.get(rank)
        call = standing.call if standing is not None else None
        if standing is None or call is None or not call.signature.asynchronous or call.state is not CallState.ISSUED:
            continue
        stack = standing.record.main_stack
        frame = stack.innermost_user if stack is not None else None
        if frame is not None and frame.site != call.site:
            later = sum(other.number > call.number for other in standing.record.in_flight)
            there.setdefault((later, frame.site), []).append(rank)
    lines = tuple(
        f"The host of {phrases.ranks(ranks)} is further: it waits{phrases.at(site)}"
        + (f", after {later} more call{'s' * (later != 1)}." if later else ".")
        for (later, site), ranks in sorted(there.items(), key=lambda entry: entry[1])[:_SHOWN]
    )
    return replace(finding, evidence=(*finding.evidence, *lines)) if lines else finding
