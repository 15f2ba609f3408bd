"""More compute threads than cores."""

from __future__ import annotations

from ddpnb.facts.init_facts import as_int
from ddpnb.facts.places import where
from ddpnb.model.calls import NO_SITE
from ddpnb.model.events import Event
from ddpnb.model.events.startup import InitProcessGroup, ThreadsSet
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import RankRecord, Recording

CPU_OVERSUBSCRIBED = FindingType("DDP704", "cpu-oversubscribed", severity="warning")


def find(recording: Recording) -> Finding | None:
    """DDP704: many more threads than cores."""
    cores = as_int(recording.host.get("cores")) or 0
    counts = {}
    for rank, record in recording.ranks.items():
        told = record.events(InitProcessGroup, ThreadsSet)
        counts[rank] = next((event.threads for event in reversed(told) if event.threads), 0)
    total = sum(counts.values())
    many = tuple(
        rank for rank, count in sorted(counts.items()) if count > 1 and count * len(counts) >= 4 * max(cores, 1)
    )
    if not cores or not many or total < 4 * cores:
        return None
    places = {rank: _set_threads(recording.ranks[rank]) for rank in many}
    return Finding(
        CPU_OVERSUBSCRIBED,
        f"The ranks use {total} compute threads on {cores} cores.",
        many,
        (),
        None,
        where({rank: event for rank, event in places.items() if event is not None}, many),
        tuple(f"Rank {rank}: {counts[rank]} threads." for rank in many[:8]),
        f"Set OMP_NUM_THREADS (or torch.set_num_threads) to the cores per rank: {max(1, cores // max(1, len(counts)))} here.",
    )


def _set_threads(record: RankRecord) -> Event | None:
    """Where the number was set, or else where it was recorded."""
    told = (*record.events(InitProcessGroup), *record.events(ThreadsSet))
    return next((event for event in reversed(told) if event.site != NO_SITE), None)
