"""What every rank is doing, in a line."""

from __future__ import annotations

from dataclasses import dataclass

from ddpnb.diagnosis.hangs.rank_state import Kind, Standing, standings
from ddpnb.diagnosis.hangs.wait_for_graph import waits
from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE, Call, Site
from ddpnb.model.recording import Recording


@dataclass(frozen=True, slots=True)
class RankStatus:
    """One rank. ``state`` is a word of ``Kind``, or ``idle`` if nothing runs; ``doing`` is a full description."""

    rank: int
    state: str
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
        record = one.record
        if not (record.calls or record.phases or record.ending) and one.kind is not Kind.FROZEN:
            found.append(RankStatus(rank, "idle", "nothing is running"))
            continue
        missing = waiting[rank].missing if rank in waiting else frozenset[int]()
        found.append(
            RankStatus(rank, one.kind.value, _doing(one, missing), one.site, one.held or one.call, one.record.steps)
        )
    return tuple(found)


def _doing(one: Standing, missing: frozenset[int]) -> str:
    place = phrases.at(one.site)
    if one.held is not None:
        return f"held before {one.held.title} of {one.held.group}{place}"
    if one.call is not None:
        whom = f", for {phrases.ranks(missing)}" if missing else ""
        return f"waits in {one.call.title} of {one.call.group}{place}{whom}"
    if one.kind in (Kind.START, Kind.NEW_GROUP):
        whom = f", for {phrases.ranks(missing)}" if missing else ""
        return f"waits in {one.phase.name if one.phase is not None else 'start-up'}{place}{whom}"
    if one.kind is Kind.ENDED:
        return f"{one.record.ending}{place if one.record.ending is not None and not one.record.ending.well else ''}"
    words = {Kind.ELSEWHERE: "is blocked", Kind.FROZEN: "does not respond; last seen", Kind.COMPUTING: "computes"}
    what = f" in {one.record.process.waits_on}" if one.kind is Kind.ELSEWHERE and one.record.process.waits_on else ""
    return f"{words.get(one.kind, 'state unknown')}{what}{place}"
