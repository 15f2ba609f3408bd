"""What every rank is doing, in a line."""

from __future__ import annotations

from dataclasses import dataclass

from ddpnb.diagnosis.hangs.rank_state import Standing, standings
from ddpnb.diagnosis.hangs.wait_for_graph import waits
from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE, Call, Site
from ddpnb.model.rank_state import RankState
from ddpnb.model.recording import Recording


@dataclass(frozen=True, slots=True)
class RankStatus:
    """One rank. ``doing`` describes it in full."""

    rank: int
    state: RankState
    doing: str
    site: Site = NO_SITE
    call: Call | None = None
    steps: int = 0


def status(recording: Recording) -> tuple[RankStatus, ...]:
    """The ranks of a Recording, in rank order."""
    standing = standings(recording)
    waiting = waits(recording, standing, 0.0)
    found: list[RankStatus] = []
    for rank, one in sorted(standing.items()):
        if one.shown is RankState.IDLE:
            found.append(RankStatus(rank, RankState.IDLE, "nothing is running"))
            continue
        missing = waiting[rank].missing if rank in waiting else frozenset[int]()
        found.append(
            RankStatus(rank, one.state, _doing(one, missing), one.site, one.held or one.call, one.record.steps)
        )
    return tuple(found)


def _doing(one: Standing, missing: frozenset[int]) -> str:
    place = phrases.at(one.site)
    if one.held is not None:
        return f"held before {one.held.title} of {one.held.group}{place}"
    if one.call is not None:
        whom = f", for {phrases.ranks(missing)}" if missing else ""
        return f"waits in {one.call.title} of {one.call.group}{place}{whom}"
    if one.state in (RankState.STARTING, RankState.CREATING_GROUP):
        whom = f", for {phrases.ranks(missing)}" if missing else ""
        return f"waits in {one.phase.name if one.phase is not None else 'start-up'}{place}{whom}"
    if one.state is RankState.ENDED:
        return f"{one.record.ending}{place if one.record.ending is not None and not one.record.ending.well else ''}"
    words = {
        RankState.BLOCKED: "is blocked",
        RankState.UNRESPONSIVE: "does not respond; last seen",
        RankState.COMPUTING: "computes",
    }
    what = (
        f" in {one.record.process.waits_on}" if one.state is RankState.BLOCKED and one.record.process.waits_on else ""
    )
    return f"{words.get(one.state, 'state unknown')}{what}{place}"
