"""Ranks that may still do what they have not done yet."""

from __future__ import annotations

from ddpnb.recording.facts.once import once
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Recording


@once
def going_on(recording: Recording) -> frozenset[int]:
    """The ranks that have neither ended nor can never continue; none where no later look says more."""
    snap = Snapshot(recording)
    if not snap.observed:
        return frozenset()
    ended = {rank for rank, standing in snap.standings.items() if standing.state is RankState.ENDED}
    proven = [stop for stop in snap.stops if not stop.suspected]
    stopped = {rank for stop in proven for rank in (*stop.waiting, *(stop.gone if stop.collective is not None else ()))}
    return frozenset(recording.ranks) - ended - snap.stuck - stopped
