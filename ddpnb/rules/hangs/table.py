"""The one table of hangs: in what ranks wait, what those do for which they wait, and how these left their way -> the code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

from ddpnb.recording.facts.departures import Left
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stops import Awaited, Stop, Waits
from ddpnb.recording.findings import FindingType
from ddpnb.rules.rule import Draft, family

TABLE: dict[tuple[Waits, Awaited, Left | None], tuple[str, ...]] = {
    # calls with one number that differ
    (Waits.CALLS, Awaited.DIFFERS, Left.SEPARATE): ("DDP302", "DDP303", "DDP304", "DDP305"),
    (Waits.CALLS, Awaited.DIFFERS, Left.LOOP): ("DDP308",),
    (Waits.CALLS, Awaited.DIFFERS, Left.SKIPPED): ("DDP301",),
    (Waits.CALLS, Awaited.DIFFERS, Left.EXTRA): ("DDP301",),
    (Waits.CALLS, Awaited.DIFFERS, Left.EITHER): ("DDP301",),
    # collectives
    (Waits.COLLECTIVE, Awaited.ENDED, Left.LOOP): ("DDP308",),
    (Waits.COLLECTIVE, Awaited.ENDED, Left.SKIPPED): ("DDP301",),
    (Waits.COLLECTIVE, Awaited.EACH_OTHER, Left.SKIPPED): ("DDP301",),
    (Waits.COLLECTIVE, Awaited.EACH_OTHER, Left.SEPARATE): ("DDP306",),
    (Waits.COLLECTIVE, Awaited.SILENT, None): ("DDP301",),
    (Waits.QUEUE, Awaited.EACH_OTHER, None): ("DDP306",),
    # sends and receives
    (Waits.POINT_TO_POINT, Awaited.ENDED, None): ("DDP307",),
    (Waits.POINT_TO_POINT, Awaited.EACH_OTHER, None): ("DDP307",),
    (Waits.POINT_TO_POINT, Awaited.SILENT, None): ("DDP307",),
    # start-up
    (Waits.START, Awaited.WRONG_CLAIM, None): ("DDP101", "DDP103"),
    (Waits.START, Awaited.ABSENT, None): ("DDP102",),
    (Waits.START, Awaited.ENDED, None): ("DDP102",),
    (Waits.START, Awaited.ELSEWHERE, None): ("DDP104",),
    (Waits.START, Awaited.EACH_OTHER, None): ("DDP104", "DDP110"),
    (Waits.START, Awaited.STALE, None): ("DDP105",),
    (Waits.STORE, Awaited.EACH_OTHER, None): ("DDP104",),
    (Waits.GROUP, Awaited.EACH_OTHER, None): ("DDP108",),
    # whatever they wait in
    (Waits.ANYTHING, Awaited.DIED, None): ("DDP311",),
    (Waits.ANYTHING, Awaited.RAISED, None): ("DDP312",),
    (Waits.ANYTHING, Awaited.BLOCKED, None): ("DDP313",),
    (Waits.ANYTHING, Awaited.UNRESPONSIVE, None): ("DDP314",),
    (Waits.NOTHING, Awaited.BLOCKED, None): ("DDP313",),
    (Waits.NOTHING, Awaited.UNRESPONSIVE, None): ("DDP314",),
    (Waits.ANYTHING, Awaited.SILENT, None): ("DDP318",),
    # calls that only the stacks show
    (Waits.STACK, Awaited.ENDED, None): ("DDP102", "DDP301"),
    (Waits.STACK, Awaited.PAST, None): ("DDP102", "DDP301"),
    (Waits.STACK, Awaited.SILENT, None): ("DDP102", "DDP301"),
    (Waits.STACK, Awaited.ABSENT, None): ("DDP102",),
    (Waits.STACK, Awaited.BLOCKED, None): ("DDP313",),
    (Waits.STACK, Awaited.UNRESPONSIVE, None): ("DDP314",),
    (Waits.STACK, Awaited.MOVING, None): ("DDP315",),
    (Waits.STACK, Awaited.DIFFERS, None): ("DDP302", "DDP307"),
    (Waits.STACK, Awaited.EACH_OTHER, None): ("DDP318",),
}


Explain = TypeVar("Explain", bound="Callable[[Snapshot, Stop], Draft | None]")


def hang(*kinds: FindingType, **how: Any) -> Callable[[Explain], Explain]:
    """Register the rule of all stops whose cell has one of these codes: what it says of one of them; None: nothing.

    Args:
        *kinds: of its findings.
        **how: as for ``ddpnb.rules.rule.rule``.
    """
    codes = {kind.code for kind in kinds}

    def add(find: Explain) -> Explain:
        @wraps(find)
        def every(snap: Snapshot) -> Iterable[Draft]:
            for stop in snap.stops:
                if not codes.isdisjoint(TABLE.get(stop.cell, ())) and (draft := find(snap, stop)) is not None:
                    yield replace(draft, stop=stop)

        family(*kinds, **{"failure": True, **how})(every)
        return find

    return add
