"""Time-outs of groups that are probably not meant."""

from __future__ import annotations

from collections.abc import Mapping

from ddpnb.facts.init_facts import inits
from ddpnb.facts.places import where
from ddpnb.model.events import Event
from ddpnb.model.events.startup import NewGroup
from ddpnb.model.findings import Finding, FindingType, Severity
from ddpnb.model.recording import Recording

TIMEOUT_SETTING = FindingType("DDP317", "timeout-setting", severity="note")

DEFAULT_TIMEOUT_S = 1800.0
_LONG_S = 4 * 3600.0


def find(recording: Recording, stuck: frozenset[int]) -> Finding | None:
    """DDP317: a sub-group without the time-out of the default group, or a time-out of many hours."""
    starts = inits(recording)
    for rank, start in sorted(starts.items()):
        own = start.timeout_s
        if own is not None and own >= _LONG_S:
            ranks = tuple(r for r, s in sorted(starts.items()) if s.timeout_s == own)
            return _timeout(
                f"The time-out of the process group is {_hours(own)}: hangs take that long to be detected.",
                ranks,
                starts,
                stuck,
                severity="warning",
            )
        if own is None or own >= DEFAULT_TIMEOUT_S:
            continue
        groups = {r: [g for g in rec.events(NewGroup) if g.timeout_s is None] for r, rec in recording.ranks.items()}
        if groups[rank]:
            places = {r: found[-1] for r, found in groups.items() if found}
            return _timeout(
                f"new_group() does not inherit the default group's time-out of {own:.0f} s: the sub-group has the "
                f"default of {DEFAULT_TIMEOUT_S / 60:.0f} minutes.",
                tuple(sorted(places)),
                places,
                stuck,
            )
    return None


def _timeout(
    summary: str,
    ranks: tuple[int, ...],
    places: Mapping[int, Event],
    stuck: frozenset[int] = frozenset(),
    severity: Severity | None = None,
) -> Finding:
    return Finding(
        TIMEOUT_SETTING,
        summary,
        ranks,
        (),
        None,
        where(places, ranks),
        (),
        "Pass timeout=timedelta(...) when creating the group: a little more than its longest legitimate wait.",
        severity=severity or ("warning" if stuck else "note"),
    )


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.0f} hours" if seconds >= 7200 else f"{seconds / 60:.0f} minutes"
