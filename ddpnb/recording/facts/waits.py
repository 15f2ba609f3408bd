"""The wait-for graph: which ranks wait for which, and which are blocked forever.

A deadlock is proven, not timed: a waiting rank is *live* if all ranks that it certainly needs are live. The ranks
that remain when no further rank can be shown to be live are blocked forever.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ddpnb.recording.calls import Call, CallState
from ddpnb.recording.collectives import needed_ranks
from ddpnb.recording.events import Event
from ddpnb.recording.events.startup import InitProcessGroup, NewGroup
from ddpnb.recording.facts.missing_ranks import missing_ranks
from ddpnb.recording.facts.point_to_point import Channels, same_channel, same_tag
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Recording

_NEAR_S = 60.0


@dataclass(frozen=True, slots=True)
class Wait:
    """What one rank waits for: the ranks that are ``missing``, of which it needs ``certain`` ones (``needed_ranks``)."""

    standing: Standing
    missing: frozenset[int]
    certain: frozenset[int]
    finite: bool = False  # it returns by itself: an explicit wait(timeout), or a group whose time-out is near


def waits(recording: Recording, standings: Mapping[int, Standing], patience: float) -> dict[int, Wait]:
    """The wait of every rank that waits for other ranks. Ranks with the same missing ranks share one set."""
    missing_in = missing_ranks(recording)
    channels: Channels | None = None
    found: dict[int, Wait] = {}
    for rank, standing in standings.items():
        call = standing.call
        if call is not None and call.is_p2p:
            channels = channels or Channels(recording.ranks)
            found[rank] = _wait_in_p2p(recording, channels, standing, call, patience)
        elif call is not None:
            missing = missing_in.in_call(call, rank)
            found[rank] = Wait(standing, missing, needed_ranks(call, rank, missing), _ends(standing, call, patience))
        elif standing.state is RankState.STARTING:
            missing = missing_in.at_start(standing)
            found[rank] = Wait(standing, missing, missing, patience == math.inf and _is_near(standing.event))
        elif standing.state is RankState.CREATING_GROUP:
            missing = missing_in.in_group(standing)
            found[rank] = Wait(standing, missing, missing)
    return found


def stuck(found: Mapping[int, Wait], standings: Mapping[int, Standing], patience: float) -> frozenset[int]:
    """The waiting ranks that are blocked forever.

    Ranks that compute, or that have been blocked outside any collective or unresponsive for less than ``patience``
    seconds, may still make the call; ended ranks never do.
    """
    live = {
        rank
        for rank, standing in standings.items()
        if rank not in found and standing.state is not RankState.ENDED and not standing.expired(patience)
    }
    by_needs: dict[tuple[frozenset[int], frozenset[int]], list[int]] = defaultdict(list)
    for rank, wait in found.items():
        if not wait.missing or wait.finite:
            live.add(rank)
        else:
            by_needs[wait.missing, wait.certain].append(rank)
    # Ranks that need several are checked again when the first of them that was not live becomes live.
    waiting_for: dict[int, list[tuple[list[int], Iterator[int]]]] = defaultdict(list)
    for_any = [(missing, ranks) for (missing, certain), ranks in by_needs.items() if not certain]
    now_live = [rank for missing, ranks in for_any if not missing.isdisjoint(live) for rank in ranks]
    unchecked = [(ranks, iter(certain)) for (_, certain), ranks in by_needs.items() if certain]
    while unchecked or now_live:
        while unchecked:
            ranks, needed = unchecked.pop()
            first = next((rank for rank in needed if rank not in live), None)
            if first is None:
                now_live += ranks
            else:
                waiting_for[first].append((ranks, needed))
        rank = now_live.pop() if now_live else None
        if rank is not None and rank not in live:
            live.add(rank)
            unchecked = waiting_for.pop(rank, [])
            now_live += [other for missing, ranks in for_any if rank in missing for other in ranks]
            for_any = [(missing, ranks) for missing, ranks in for_any if rank not in missing]
    return frozenset(found) - live


def _ends(standing: Standing, call: Call, patience: float) -> bool:
    """Whether a wait in a call returns by itself; with patience, a program that waits for a near time-out has lost it."""
    if call.timeout_ms > 0 or patience < math.inf:
        return call.timeout_ms > 0
    made: list[Event] = [one for one in standing.record.events(NewGroup) if one.name == call.group.name]
    if call.group.label == "default_pg":
        made = [*standing.record.events(InitProcessGroup)]
    return bool(made) and _is_near(made[-1])


def _is_near(event: Event | None) -> bool:
    """Whether the time-out that a group was given is so near that a program may count on it."""
    timeout = event.timeout_s if isinstance(event, (InitProcessGroup, NewGroup)) else None
    return timeout is not None and timeout <= _NEAR_S


def _wait_in_p2p(recording: Recording, channels: Channels, standing: Standing, call: Call, patience: float) -> Wait:
    me, finite = standing.rank, _ends(standing, call, patience)
    if call.peer < 0 and call.op != "recv_any_source":
        return Wait(standing, frozenset(), frozenset(), finite)  # of a group whose members are not known
    # A send whose Work was discarded may have arrived or not, and calls that are forgotten are unknown: patience decides.
    doubtful = standing.idle_s < patience
    mine = recording.ranks[me]
    # Sends to this rank that none of its completed receives has taken; the source of a receive from any is not
    # recorded.
    received = sum(
        c.op in ("recv", "recv_any_source") and c.state is CallState.COMPLETED and same_tag(c, call) for c in mine.calls
    )
    sent = channels.sent(me, call, doubtful) if call.op != "send" else 0
    left = sent - received if not mine.forgotten else sent
    if call.op == "recv_any_source":
        return Wait(standing, frozenset() if left > 0 else channels.others(call, me), frozenset(), finite)
    place = call.turn or sum(1 for c in mine.calls if c.number <= call.number and same_channel(c, call))
    if call.op == "recv":
        matched = left > 0 and channels.made(call.peer, "send", me, call, doubtful) >= place
    else:
        receives = channels.made(call.peer, "recv", me, call, doubtful)
        matched = receives + channels.made(call.peer, "recv_any_source", -1, call, doubtful) >= place
    missing = frozenset() if matched else frozenset({call.peer})
    return Wait(standing, missing, missing, finite)
