"""Hosts of which nothing is heard: what their ranks do is not known, and nothing is said of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ddpnb.facts.places import where
from ddpnb.facts.standings import Standing
from ddpnb.model import phrases
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.names import one_line
from ddpnb.model.rank_state import RankState
from ddpnb.model.recording import Recording

HOST_UNREACHABLE = FindingType("DDP708", "host-unreachable", after_patience=True)
_LONGEST = 80  # characters of the name of a host
_FEW = 8  # ranks with words of their own


def find(recording: Recording, standings: Mapping[int, Standing]) -> Finding | None:
    """DDP708: a host does not answer. Ranks of other hosts may wait for its ranks; which of them is at fault is not known."""
    hosts = silent_hosts(recording)
    if not hosts:
        return None
    away = sorted(rank for ranks in hosts.values() for rank in ranks)
    waiting = sorted(rank for rank, one in standings.items() if rank not in away and one.state is RankState.WAITING)
    evidence = [
        f"The last call of rank {rank} that is known is {phrases.in_call(calls[-1])}{phrases.at(calls[-1].site)}."
        for ranks in hosts.values()
        for rank in ranks[:_FEW]
        if (calls := recording.ranks[rank].calls)
    ]
    evidence += [
        f"Rank {rank} is blocked in {phrases.in_call(call)}{phrases.at(standings[rank].site)}."
        for rank in waiting[:_FEW]
        if (call := standings[rank].call) is not None
    ]
    named = " and ".join(f"host {name} ({phrases.ranks(ranks)})" for name, ranks in hosts.items())
    verb = "does" if len(hosts) == 1 else "do"
    return Finding(
        HOST_UNREACHABLE,
        f"{named[:1].upper()}{named[1:]} {verb} not answer: what these ranks do is not known.",
        (),
        tuple(waiting),
        standings[waiting[0]].call if waiting else None,
        where(standings, waiting),
        tuple(evidence),
        "Look at the network between the hosts (ping, the switch, a firewall that has just begun to act), and whether the "
        "host and the engine that you started there still run. When it answers again, world.release() frees the ranks and "
        "the world can be used as before.",
        certainty="timed",
    )


def silent_hosts(recording: Recording) -> dict[str, list[int]]:
    """Hosts that did not answer when the Recording was taken, with their ranks."""
    told = recording.host.get("silent_hosts")
    if not isinstance(told, dict):
        return {}
    return {
        one_line(str(name)[:_LONGEST]): [rank for rank in cast("list[Any]", ranks) if rank in recording.ranks]
        for name, ranks in cast("dict[Any, Any]", told).items()
        if isinstance(ranks, list)
    }
