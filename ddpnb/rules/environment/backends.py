"""Backends that differ between ranks."""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.recording.events.startup import InitProcessGroup, NewGroup
from ddpnb.recording.facts.init_facts import inits
from ddpnb.recording.facts.snapshot import PerRank, Snapshot
from ddpnb.rules.rule import Draft, differ, rule


@rule("DDP106", "backend-mismatch", group_mismatch=True)
def backends(snap: Snapshot) -> Iterable[Draft]:
    """The ranks request different backends for the world, or for the n-th new_group."""
    starts = PerRank(inits(snap.recording))
    made = (
        snap.every(NewGroup) if snap.recording.has_all_events else PerRank()
    )  # else whose first is which is not known
    turns = range(max(map(len, made.values()), default=0))
    groups = (made.of(lambda events, turn=turn: events[turn] if len(events) > turn else None) for turn in turns)
    alike = (events for events in groups if len({event.ranks for event in events.values()}) == 1)
    for events in (starts, *alike):
        found = list(
            differ(
                PerRank({rank: _asked(event) for rank, event in events.items()}),
                at=events,
                one="{who} [requests|request] {mine} as backend, {others} {theirs}.",
                tie="The ranks request different backends: {sides}.",
                line="backend {}",
                shown=lambda name: repr(name) if name else "the default",
                remedy="Request the same backend on all ranks.",
            )
        )
        if found:
            return found
    return ()


def _asked(event: InitProcessGroup | NewGroup) -> str:
    asked = event.asked if isinstance(event, InitProcessGroup) else None
    return (event.backend if asked is None else asked).lower()
