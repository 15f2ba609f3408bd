"""What every rank is doing, in a line."""

from __future__ import annotations

from dataclasses import dataclass

from ddpnb.recording import checkpoints, phrases
from ddpnb.recording.calls import NO_SITE, Call, Site
from ddpnb.recording.events.runs import Elsewhere, Held, RanksPart
from ddpnb.recording.facts.compilations import named
from ddpnb.recording.facts.standings import Standing, compiles, standings
from ddpnb.recording.facts.waits import waits
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.render import rank_states


@dataclass(frozen=True, slots=True)
class RankStatus:
    """One rank. ``doing`` describes it in full; ``checkpoint``: the numbered checkpoint that it passed last."""

    rank: int
    state: RankState
    doing: str
    site: Site = NO_SITE
    call: Call | None = None
    steps: int = 0
    checkpoint: str = ""


def status(recording: Recording) -> tuple[RankStatus, ...]:
    """The ranks of a Recording, in rank order."""
    by_rank = standings(recording)
    waiting = waits(recording, by_rank, 0.0)
    found: list[RankStatus] = []
    for rank, standing in sorted(by_rank.items()):
        if standing.shown is RankState.IDLE:
            found.append(RankStatus(rank, RankState.IDLE, rank_states.at_rest(standing.record)))
            continue
        missing = waiting[rank].missing if rank in waiting else frozenset[int]()
        found.append(
            RankStatus(
                rank,
                standing.state,
                _doing(standing, missing),
                standing.site,
                standing.held or standing.call,
                standing.record.steps,
                checkpoints.with_line(last) if (last := checkpoints.last(standing.record)) is not None else "",
            )
        )
    return tuple(found)


def _doing(standing: Standing, missing: frozenset[int]) -> str:
    place = phrases.at(standing.site)
    whom = f", for {phrases.ranks(missing)}" if missing else ""
    ending, waits_on = standing.record.ending, standing.record.process.waits_on
    if standing.held is not None:
        return f"held before {standing.held.title} of {standing.held.group}{place}{_parted(standing.record, standing.held)}{_differing(standing.record, standing.held)}"
    if isinstance(standing.event, Held):
        return _held_at_line(standing.event)
    if standing.call is not None:
        return f"waits in {standing.call.title} of {standing.call.group}{place}{whom}"
    if standing.function:
        return f"waits in {standing.function}{place}, by its stack"
    if standing.starting is not None:
        return f"waits in {standing.starting.title}{place}{whom}"
    if ending is not None:
        return f"{ending}{'' if ending.well else place}"
    if standing.state is RankState.BLOCKED:
        return f"is blocked{f' in {waits_on}' if waits_on else ''}{place}"
    if standing.state is RankState.COMPUTING and compiles(standing.record):
        now = standing.record.compiling
        return f"compiles {named(now)}{place}" if now is not None else f"compiles{place}"
    words = {RankState.UNRESPONSIVE: "does not respond; last seen", RankState.COMPUTING: "computes"}
    return f"{words.get(standing.state, 'state unknown')}{place}"


def _differing(record: RankRecord, held: Call) -> str:
    """The value that differs between ranks, if that is why a call is held."""
    why = next((one.why for one in reversed(record.events(Held)) if one.call == held.number), "")
    return f": {why}" if why else ""


def _held_at_line(event: Held) -> str:
    place = phrases.at(event.site)
    thread = f" in the thread {event.thread}" if event.thread else ""
    if event.kind == "exception":
        return f"held{thread} by an exception that is not handled{place}: {event.why}"
    return f"held before the line{place}{thread}: {event.why}"


def _parted(record: RankRecord, held: Call) -> str:
    """From which ranks a rank has parted, and how; empty where that is not why it is held."""
    parted = next((one for one in reversed(record.events(RanksPart)) if one.call == held.number), None)
    ways: dict[str, list[int]] = {}
    for one in parted.peers if parted is not None else ():
        ways.setdefault(_elsewhere(one), []).append(one.rank)
    sides = "; ".join(f"{phrases.ranks(ranks)}{way}" for way, ranks in ways.items())
    return f": parted from {sides}" if sides else ""


def _elsewhere(one: Elsewhere) -> str:
    place = one.place
    at = phrases.at(Site(place.file, place.line, place.function)) if place.file else ""
    if one.operation:
        return f" ({one.operation}{at})"
    if len(one.iterations) == 2:
        here, there = one.iterations
        return f"{at} (iterations of the loop since the last call: {here} here, {there} there)"
    line = "another call in this line" if one.here.line == place.line else f"line {one.here.line}"
    exchanged = f", in the other order than at #{one.exchanged} (DDP309)" if one.exchanged else ""
    return f"{at} (here: {line}{exchanged})" if at else ""
