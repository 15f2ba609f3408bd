"""DDP708: hosts of which nothing is heard; what their ranks do is not known, and nothing is said of it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ddpnb.recording import phrases
from ddpnb.recording.facts.silent_hosts import silent_hosts
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.rank_state import RankState
from ddpnb.rules.rule import Draft, alike, rule


@rule("DDP708", "host-unreachable", after_patience=True, failure=True, needs=())
def host_unreachable(snap: Snapshot) -> Iterable[Draft]:
    """A host does not answer. Ranks of other hosts may wait for its ranks; which of them is at fault is not known."""
    hosts = silent_hosts(snap.recording)
    if not hosts or snap.patience == math.inf:
        return
    standings = snap.standings
    away = [rank for ranks in hosts.values() for rank in ranks]
    waiting = [rank for rank in sorted(standings) if rank not in away and standings[rank].state is RankState.WAITING]
    in_calls = {rank: call for rank in waiting if (call := standings[rank].call) is not None}
    last = {rank: snap.ranks[rank].calls[-1] for rank in away if snap.ranks[rank].calls}
    named = " and ".join(f"host {name} ({phrases.ranks(ranks)})" for name, ranks in hosts.items())
    yield Draft(
        f"{named[:1].upper()}{named[1:]} {'does' if len(hosts) == 1 else 'do'} not answer: what these ranks do is not known.",
        remedy="Look at the network between the hosts (ping, the switch, a firewall that has just begun to act), and whether the "
        "host and the engine that you started there still run. When it answers again, world.release() frees the ranks and "
        "the world can be used as before.",
        at=snap.at(waiting),
        waiting=waiting,
        evidence=(
            *alike(
                "The last call of {who} that is known is {call}{at}.",
                {rank: {"call": phrases.in_call(call), "at": phrases.at(call.site)} for rank, call in last.items()},
            ),
            *alike(
                "{who} [is|are] blocked in {call}{at}.",
                {
                    rank: {"call": phrases.in_call(call), "at": phrases.at(standings[rank].site)}
                    for rank, call in in_calls.items()
                },
            ),
        ),
        collective=standings[waiting[0]].call if waiting else None,
        certainty="timed",
    )
