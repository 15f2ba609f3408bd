"""Checkpoints that several ranks write to one file."""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.facts.snapshot import Snapshot
from ddpnb.model.events.models import CheckpointSaved
from ddpnb.rules.rule import Draft, rule, say


@rule("DDP603", "checkpoint-race", severity="warning")
def one_file(snap: Snapshot) -> Iterable[Draft]:
    """Several ranks write one file."""
    paths = {save.path for saves in snap.every(CheckpointSaved).values() for save in saves}
    for path in sorted(path for path in paths if path.startswith("/") and not path.startswith("/dev/")):
        writers = snap.last(CheckpointSaved, path=path)
        if len(writers) > 1:
            yield Draft(
                say(
                    "{who} all write {path}: the writes race, and a reader may see a partial file.", writers, path=path
                ),
                tuple(writers),
                "Save on rank 0 only (if rank == 0: torch.save(...); then dist.barrier()), or to one file per rank.",
                writers,
            )
            return
