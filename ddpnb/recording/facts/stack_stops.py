"""Stops of ranks whose calls were not recorded: by their stacks and the state of their processes.

Which call of a group a rank is in, for which ranks it waits and with what arguments is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ddpnb.recording.facts.once import once
from ddpnb.recording.facts.stack_calls import POINT_TO_POINT, START, WORK, call_in, may_wait_for_work
from ddpnb.recording.facts.stack_evidence import is_past, still_s
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.facts.stops import Awaited, Stop, Waits
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Recording
from ddpnb.recording.split import split

_NOBODY_WAITS = 3  # times the patience, as for recorded ranks


def stack_stop(recording: Recording, given: Mapping[int, Standing], patience: float) -> Stop | None:
    """Why these ranks make no progress, or for whom they wait; None before patience is over."""
    standings = {rank: _with_work(recording, standing) for rank, standing in given.items()}
    if recording.report is not None and not any(one.function for one in standings.values()):
        standings = _busy_in_calls(standings)
    waiting = [rank for rank, one in standings.items() if one.function and still_s(one) >= patience]
    frozen = [rank for rank, one in standings.items() if one.state is RankState.UNRESPONSIVE and one.idle_s >= patience]
    ended = [rank for rank, one in standings.items() if one.state is RankState.ENDED]
    silent = [rank for rank, one in standings.items() if is_nowhere(one)]
    away = [
        rank
        for rank, one in standings.items()
        if not one.function and one.expired(patience) and rank not in silent and one.state is not RankState.COMPUTING
    ]
    explained = {*waiting, *frozen, *ended, *away}
    moving = [
        rank
        for rank, one in standings.items()
        if is_seen(one) and rank not in explained and one.state is not RankState.UNKNOWN
    ]

    def stop(awaited: Awaited, gone: Sequence[int] = ()) -> Stop:
        return Stop(Waits.STACK, awaited, tuple(waiting), tuple(gone), standings)

    if not waiting:
        still = [*frozen, *away]
        if moving or not still or not all(standings[rank].idle_s >= _NOBODY_WAITS * patience for rank in still):
            return None
        return replace(stop(Awaited.UNRESPONSIVE if frozen else Awaited.BLOCKED, frozen or away), waits=Waits.NOTHING)
    if frozen:
        return stop(Awaited.UNRESPONSIVE, frozen)
    if ended:
        return stop(Awaited.ENDED, ended)
    few = len(silent) == 1 or 0 < len(silent) < len(waiting)
    if few and not moving and not away and len({standings[rank].function for rank in waiting}) == 1:
        return stop(Awaited.SILENT, silent)
    if moving:
        # A report is of ranks that somebody saw hang: one that moved there did not make the call until then.
        return stop(Awaited.PAST if recording.report is not None else Awaited.MOVING, moving)
    if away:
        past = [rank for rank in away if is_past(recording, standings[waiting[0]].record, standings[rank].record)]
        return stop(Awaited.PAST if past == away else Awaited.BLOCKED, away)
    return _all_wait(recording, standings, stop)


def _all_wait(recording: Recording, standings: Mapping[int, Standing], stop) -> Stop | None:  # noqa: ANN001
    whole: Stop = stop(Awaited.EACH_OTHER)
    functions = {standings[rank].function for rank in whole.waiting}
    absent = [rank for rank in range(recording.world_size) if not is_seen(standings.get(rank))]
    if functions == {START} and absent:
        return stop(Awaited.ABSENT, absent)
    if functions <= POINT_TO_POINT or len(sides_of(whole)) > 1:
        return stop(Awaited.DIFFERS)
    return whole if len(whole.waiting) > 1 else None  # of the others nothing is known


def sides_of(stop: Stop) -> tuple[tuple[int, ...], ...]:
    """The waiting ranks by the function and the line in which they are, the most first."""
    return split({rank: (stop.standings[rank].function, stop.standings[rank].site) for rank in stop.waiting}).sides


def _with_work(recording: Recording, standing: Standing) -> Standing:
    """A rank at a line of the user's that calls ``wait``: it may wait for a collective there, without a frame of torch."""
    if standing.state is not RankState.BLOCKED:
        return standing
    lines = _lines(recording, standing.site.file)
    text = lines[standing.site.line - 1] if 0 < standing.site.line <= len(lines) else ""
    return replace(standing, function=WORK) if may_wait_for_work(standing.record.main_stack, text) else standing


def _busy_in_calls(standings: Mapping[int, Standing]) -> Mapping[int, Standing]:
    """With those in a call that keep their core busy, as NCCL does while it waits, if others are outside of all calls."""
    functions = {rank: call_in(one.record.main_stack) for rank, one in standings.items() if one.record.main_stack}
    busy = {
        rank: function
        for rank, function in functions.items()
        if function and standings[rank].state is RankState.COMPUTING
    }
    if len(busy) == len(functions):
        return standings
    return {
        rank: replace(one, state=RankState.WAITING, function=busy[rank]) if rank in busy else one
        for rank, one in standings.items()
    }


@once
def _lines(recording: Recording, file: str) -> list[str]:
    return recording.sources.get(file, "").splitlines()


def is_seen(standing: Standing | None) -> bool:
    """Whether anything is known of the rank's process."""
    return standing is not None and (
        standing.record.pid > 0 or bool(standing.record.stacks) or standing.state is RankState.ENDED
    )


def is_nowhere(standing: Standing) -> bool:
    """Whether a report does not show where a rank was: it has no call and no stack of it."""
    return standing.reported and standing.state is RankState.UNKNOWN and standing.record.main_stack is None
