"""More compute threads than cores."""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.events.startup import InitProcessGroup, ThreadsSet
from ddpnb.recording.facts.init_facts import as_int
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.rules.rule import Draft, each, rule


@rule("DDP704", "cpu-oversubscribed", severity="warning")
def threads(snap: Snapshot) -> Iterable[Draft]:
    """Many more threads than cores."""
    cores = as_int(snap.recording.host.get("cores")) or 0
    told = snap.every(InitProcessGroup, ThreadsSet)
    counts = told.of(lambda events: next((event.threads for event in reversed(events) if event.threads), None))
    total, ranks = sum(counts.values()), len(snap.ranks)
    many = tuple(rank for rank, count in counts.items() if count > 1 and count * ranks >= 4 * max(cores, 1))
    if cores and many and total >= 4 * cores:
        set_at = told.of(  # where the number was set, or else where it was recorded
            lambda events: max(
                (e for e in events if e.site != NO_SITE), key=lambda e: isinstance(e, ThreadsSet), default=None
            )
        )
        yield Draft(
            f"The ranks use {total} compute threads on {cores} cores.",
            many,
            f"Set OMP_NUM_THREADS (or torch.set_num_threads) to the cores per rank: {max(1, cores // max(1, ranks))} here.",
            set_at.among(many),
            evidence=each(many, lambda rank: f"Rank {rank}: {counts[rank]} threads."),
        )
