"""The verdict on a run without findings, in a line: only what was recorded."""

from __future__ import annotations

from ddpnb.recording.events.startup import InitProcessGroup
from ddpnb.recording.facts.replicas import Replicas, kept_together
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.render.card import HEADLINES, outcome_line

NO_GROUP = "no process group was made: nothing to diagnose"
_ALL_LOOKS = 40  # that are surely kept: of later ones at which the ranks agreed, the last


def line(diagnosis: Diagnosis, recording: Recording) -> str:
    """What is known of a run without findings.

    Example:
        >>> line(run.diagnosis, run.recording)
        'ok: 4 ranks, 120 collectives on each, replicas equal at 30 looks'
    """
    if not _has_group(recording):
        return NO_GROUP
    facts = ", ".join(filter(None, (_count(recording.world_size, "rank"), _calls(recording), _replicas(recording))))
    outcome = outcome_line(diagnosis)
    return f"ok: {facts}" if outcome == HEADLINES["ok"] else f"{outcome} ({facts})"


def _has_group(recording: Recording) -> bool:
    """Whether a rank has made a process group, or what it did is no longer known."""
    return any(
        record.calls
        or record.forgotten
        or record.events_forgotten
        or record.events(InitProcessGroup)
        or record.unrecorded
        for record in recording.ranks.values()
    )


def _calls(recording: Recording) -> str:
    """How many calls each rank made: collectives, if all calls are known and none is a send or receive."""
    records = recording.ranks.values()
    if any(record.unrecorded or record.detached for record in records):
        return ""
    every = [record.forgotten + len(record.calls) for record in records]
    mixed = any(record.forgotten or any(call.is_p2p for call in record.calls) for record in records)
    low, high = min(every, default=0), max(every, default=0)
    between = f"{low:,} to " if low != high else ""
    return f"{between}{_count(high, 'call' if mixed else 'collective')}{' on each' if len(every) > 1 else ''}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _replicas(recording: Recording) -> str:
    """At how many looks all replicas of each model were equal; empty where they were not compared, or differ."""
    every = kept_together(recording)
    looks = min((_equal_looks(replicas) for replicas in every), default=0)
    if not looks:
        return ""
    more = " and more" if looks > _ALL_LOOKS else ""
    return f"replicas equal at {_count(looks, 'look')}{more}"


def _equal_looks(replicas: Replicas) -> int:
    """The kept looks after a step at which all ranks with a replica were compared; 0 if a look found a difference."""
    if replicas.difference("forward", "updated") is not None:
        return 0
    return max(
        sum(replicas.holders <= at.keys() for at in replicas.turns(kind).values()) for kind in ("forward", "updated")
    )
