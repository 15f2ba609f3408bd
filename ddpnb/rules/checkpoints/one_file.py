"""Checkpoints that several ranks write to one file."""

from __future__ import annotations

from collections import defaultdict

from ddpnb.facts.places import where
from ddpnb.model import phrases
from ddpnb.model.events.models import CheckpointSaved
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording

CHECKPOINT_RACE = FindingType("DDP603", "checkpoint-race", severity="warning")


def find(recording: Recording) -> Finding | None:
    """DDP603: several ranks write one file."""
    writers: dict[str, dict[int, CheckpointSaved]] = defaultdict(dict)
    for rank, record in recording.ranks.items():
        for save in record.events(CheckpointSaved):
            if save.path.startswith("/") and not save.path.startswith("/dev/"):
                writers[save.path][rank] = save
    shared = {path: ranks for path, ranks in writers.items() if len(ranks) > 1}
    if not shared:
        return None
    path, places = next(iter(sorted(shared.items())))
    return Finding(
        CHECKPOINT_RACE,
        f"{phrases.ranks(places, True)} all write {path}: the writes race, and a reader may see a partial file.",
        tuple(sorted(places)),
        where=where(places, sorted(places)),
        remedy="Save on rank 0 only (if rank == 0: torch.save(...); then dist.barrier()), or to one file per rank.",
    )
