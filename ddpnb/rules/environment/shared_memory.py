"""Shared memory that is nearly full."""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.recording.events.data import LoaderSeen
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.rules.rule import Draft, each, rule

_MIB = 1 << 20
_LOW, _FULL = 64 * _MIB, 8 * _MIB  # free bytes: what Docker gives at first; less than one batch of pictures


@rule("DDP506", "shared-memory-low", severity="note")
def shared_memory(snap: Snapshot) -> Iterable[Draft]:
    """Workers pass batches through shared memory that is tiny or nearly full."""
    host = snap.recording.host
    total, free = host.get("shm_total"), host.get("shm_free")
    loaders = snap.every(LoaderSeen).of(lambda seen: next((one for one in reversed(seen) if one.num_workers > 0), None))
    if not isinstance(total, (int, float)) or not isinstance(free, (int, float)):
        return
    if total and free <= _LOW and loaders:
        workers = sum(loader.num_workers for loader in loaders.values())
        yield Draft(
            f"/dev/shm has {free / _MIB:.0f} MiB left of {total / _MIB:.0f} MiB: DataLoader workers pass their batches through it.",
            tuple(loaders),
            "Give the container more shared memory (docker run --shm-size=8g, or --ipc=host), or use fewer workers and batches in flight.",
            loaders,
            evidence=each(loaders, lambda rank: f"Rank {rank}: {loaders[rank].num_workers} workers."),
            severity="warning" if free < max(_FULL, workers * _MIB) else "note",
        )
