"""Labels of the lanes: what the rank is doing, a mismatched call, or a missing one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from ddpnb.recording.calls import Call, CallState
from ddpnb.recording.collectives import call_in
from ddpnb.recording.events.startup import InitProcessGroup
from ddpnb.recording.facts.standings import Standing, standings
from ddpnb.recording.facts.waits import waits
from ddpnb.recording.findings import Diagnosis, Finding
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.texts import shortened

_LONGEST = 80  # characters
_OF_A_KIND = 4  # ranks that have a lane in any case, if there is room
_ENOUGH = 24  # ranks of very many, where fewer show all kinds


@dataclass(frozen=True, slots=True)
class LaneMark:
    """What a culprit did or did not do: the call ``number`` does not fit, or since ``since_ns`` others wait for it."""

    kind: Literal["mismatch", "absent"]
    words: str
    number: int = -1
    since_ns: int = 0


def representatives(recording: Recording, diagnosis: Diagnosis | None, most: int) -> list[int]:
    """The most relevant ranks, in rank order: all if there is room, else some culprits, and a few ranks of each kind.

    Ranks in the same state, in the same call and at the same line are of one kind; rare kinds come first. Hundreds of lanes
    that are alike would hide those that differ.
    """
    ranks = sorted(recording.ranks)
    if len(ranks) <= most:
        return ranks
    errors = diagnosis.errors if diagnosis is not None else ()
    culprits = [rank for finding in errors for rank in finding.culprits]
    kinds: dict[object, list[int]] = {}
    for rank, one in standings(recording).items():
        call = (one.call.group.key, one.call.seq, one.call.op) if one.call is not None else ()
        kinds.setdefault((one.state, call, one.site), []).append(rank)
    rare = sorted(kinds.values(), key=lambda those: (len(those), those[0]))
    waiting = [rank for finding in errors for rank in finding.waiting[:_OF_A_KIND]]
    few = [rank for those in rare for rank in those[:_OF_A_KIND]]
    order = [*culprits[: most // 2], *waiting, *few, *culprits]
    chosen = [rank for rank in dict.fromkeys([*order, *ranks]) if rank in recording.ranks]
    needed = len({*culprits[: most // 2], *waiting, *few})
    return sorted(chosen[: min(most, max(needed, _ENOUGH))])


@dataclass(frozen=True, slots=True)
class Doing:
    """What a rank is doing, and the same in words that fit into a lane (none while it computes).

    ``since_ns`` is when it ceased to compute, if that is not when it made a call; 0 otherwise. ``stands_in``
    is a call that it had begun and left, and waits for now: where nobody in Python does, as at the end of a
    backward pass; -1: there is none.
    """

    state: RankState = RankState.UNKNOWN
    words: str = ""
    since_ns: int = 0
    stands_in: int = -1


def doings(recording: Recording) -> dict[int, Doing]:
    """What every rank is doing."""
    by_rank = standings(recording)
    waiting = waits(recording, by_rank, 0.0)
    return {
        rank: Doing(
            standing.state if standing.state is not RankState.COMPUTING else standing.shown,
            _cut(_doing(standing, waiting[rank].missing if rank in waiting else ())),
            _ceased(standing, recording.taken_ns),
            standing.call.number if standing.call is not None and standing.call.state is CallState.ISSUED else -1,
        )
        for rank, standing in by_rank.items()
    }


def _ceased(standing: Standing, taken_ns: int) -> int:
    if standing.record.ending is not None:
        return standing.record.ending.at_ns
    if standing.event is not None:
        return standing.event.began_ns
    idle_since = max(0, taken_ns - int(standing.idle_s * 1e9)) if 0 <= standing.idle_s < 1e9 else 0
    if standing.elsewhere or standing.state is RankState.UNRESPONSIVE:
        return idle_since
    if standing.call is not None and standing.call.state is CallState.ISSUED:
        last = standing.record.calls[-1]  # its last known position
        return max(idle_since, last.entered_ns, last.issued_ns, last.done_ns)
    return 0


def marks(recording: Recording, diagnosis: Diagnosis | None) -> dict[int, LaneMark]:
    """The marks of the culprits of all errors; the first finding about a rank counts."""
    found: dict[int, LaneMark] = {}
    errors = diagnosis.errors if diagnosis is not None else ()
    by_rank = standings(recording) if errors else {}
    for finding in errors:
        if finding.collective is None or not finding.waiting:
            continue
        since = _since(recording, finding, finding.collective)
        for rank in finding.culprits:
            if rank in by_rank and rank not in found:
                mark = _mark(by_rank[rank], finding, finding.collective, since)
                if mark is not None:
                    found[rank] = mark
    return found


def begin_of(record: RankRecord) -> int:
    """When the rank began to train, if known: the end of ``init_process_group``."""
    joined = record.events(InitProcessGroup)
    return joined[-1].ended_ns if joined else 0


def _mark(standing: Standing, finding: Finding, collective: Call, since: int) -> LaneMark | None:
    own = call_in(standing.record, collective.group, collective.seq)
    if finding.type.separate_calls:
        own = standing.call or own
        return LaneMark("mismatch", _cut(f"{own.title}: not the call of the other ranks"), own.number) if own else None
    if own is not None:
        if (
            own.signature.agreed == collective.signature.agreed
            and own.signature.in_splits == collective.signature.in_splits
        ):
            return None
        what = "not the call of the other ranks" if own.op != collective.op else "differs from the other ranks"
        return LaneMark("mismatch", _cut(f"{own.title}: {what}"), own.number)
    if standing.call is not None:
        return LaneMark(
            "mismatch", _cut(f"{standing.call.title}: not the call of the other ranks"), standing.call.number
        )
    why = _doing(standing, ()) or ("computing" if standing.state is RankState.COMPUTING else "state unknown")
    return LaneMark("absent", _cut(f"{why}: never called {collective.title}"), since_ns=since)


def _since(recording: Recording, finding: Finding, collective: Call) -> int:
    """When the first waiting rank arrived at the collective."""
    records = [recording.ranks[rank] for rank in finding.waiting if rank in recording.ranks]
    calls = [call for record in records if (call := call_in(record, collective.group, collective.seq)) is not None]
    return min((call.entered_ns for call in calls if call.entered_ns), default=collective.entered_ns)


def _doing(standing: Standing, missing: Collection[int]) -> str:
    if standing.held is not None:
        return f"held before {standing.held.title}"
    if standing.call is not None:
        return f"{standing.call.title} waits for {few(missing)}" if missing else standing.call.title
    if standing.starting is not None:
        return f"{standing.starting.title} waits for {few(missing)}" if missing else standing.starting.title
    if standing.state is RankState.ENDED and standing.record.ending is not None:
        return str(standing.record.ending)
    if standing.function:
        return standing.function
    if standing.state in (RankState.BLOCKED, RankState.UNRESPONSIVE):
        what = "blocked" if standing.state is RankState.BLOCKED else "unresponsive"
        return f"{what} at {standing.site}" if standing.site.line else what
    return ""


def few(ranks: Collection[int]) -> str:
    """``1``, ``0, 2 and 3``, ``12 ranks``."""
    found = sorted(ranks)
    if len(found) > 4:
        return f"{len(found)} ranks"
    return f"{', '.join(map(str, found[:-1]))} and {found[-1]}" if len(found) > 1 else "".join(map(str, found))


def _cut(text: str) -> str:
    return shortened(" ".join(text.split()), _LONGEST)
