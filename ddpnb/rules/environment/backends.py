"""Backends that differ between ranks."""

from __future__ import annotations

from collections.abc import Mapping

from ddpnb.facts.digests import split
from ddpnb.facts.init_facts import inits
from ddpnb.facts.once import once
from ddpnb.facts.places import where
from ddpnb.model import phrases
from ddpnb.model.events.startup import InitProcessGroup, NewGroup
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording

BACKEND_MISMATCH = FindingType("DDP106", "backend-mismatch", group_mismatch=True)


@once
def find(recording: Recording) -> Finding | None:
    """DDP106: the ranks request different backends."""
    events: Mapping[int, InitProcessGroup | NewGroup] = inits(recording)
    asked = {r: (e.backend if e.asked is None else e.asked).lower() for r, e in inits(recording).items()}
    apart = split(asked)
    if not apart.differs:
        events, asked = _of_groups(recording)
        apart = split(asked)
    if not apart.differs:
        return None
    odd, others = apart.odd, apart.sides[0]
    sides = apart.sides if apart.tied else ()
    if sides or len(apart.sides) > 2:
        told = phrases.by_side(apart.sides, lambda rank: repr(asked[rank]) if asked[rank] else "the default")
        summary = f"The ranks request different backends: {told}."
    else:
        summary = (
            f"{phrases.ranks(odd, True)} {phrases.verb(odd, 'requests', 'request')} the backend {asked[odd[0]] or 'by default'!r}, "
            f"{phrases.ranks(others)} {asked[others[0]] or 'the default'!r}."
        )
    return Finding(
        BACKEND_MISMATCH,
        summary,
        apart.culprits,
        () if sides else others,
        None,
        where(events, (*odd, *others)),
        (
            *(f"Rank {rank}: backend {name or '(default)'}." for rank, name in sorted(asked.items())[:8]),
            *phrases.undecided(sides),
        ),
        "Request the same backend on all ranks.",
        sides=sides,
    )


def _of_groups(recording: Recording) -> tuple[dict[int, NewGroup], dict[int, str]]:
    """The first new_group for which the ranks request different backends: its events, and those backends."""
    if not recording.has_all_events:  # which of them is whose first is not known
        return {}, {}
    made = {rank: record.events(NewGroup) for rank, record in recording.ranks.items()}
    for turn in range(max(map(len, made.values()), default=0)):
        groups = {rank: found[turn] for rank, found in made.items() if len(found) > turn}
        asked = {rank: group.backend.lower() for rank, group in groups.items()}
        if len(set(asked.values())) > 1 and len({group.ranks for group in groups.values()}) == 1:
            return groups, asked
    return {}, {}
