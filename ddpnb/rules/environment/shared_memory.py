"""Shared memory that is nearly full."""

from __future__ import annotations

from ddpnb.facts.places import where
from ddpnb.model.events.data import LoaderSeen
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording

SHARED_MEMORY_LOW = FindingType("DDP506", "shared-memory-low", severity="warning")


def find(recording: Recording) -> Finding | None:
    """DDP506: workers pass batches through shared memory that is nearly full, or tiny."""
    total, free = recording.host.get("shm_total"), recording.host.get("shm_free")
    if not isinstance(total, (int, float)) or not isinstance(free, (int, float)) or free > 64 << 20:
        return None
    loaders = {
        rank: [loader for loader in record.events(LoaderSeen) if loader.num_workers > 0]
        for rank, record in recording.ranks.items()
    }
    ranks = tuple(rank for rank, found in sorted(loaders.items()) if found)
    if not ranks:
        return None
    return Finding(
        SHARED_MEMORY_LOW,
        f"/dev/shm has {free / 2**20:.0f} MiB left of {total / 2**20:.0f} MiB: DataLoader workers pass their batches through it.",
        ranks,
        (),
        None,
        where({rank: loaders[rank][-1] for rank in ranks}, ranks),
        (),
        "Give the container more shared memory (docker run --shm-size=8g, or --ipc=host), or use fewer workers and batches in flight.",
    )
