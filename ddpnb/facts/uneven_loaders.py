"""Ranks whose loaders counted fewer batches."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.model.recording import Recording
from ddpnb.rules.data.batches import uneven_shards


def fewer_batches(recording: Recording, ranks: Sequence[int]) -> bool:
    """Whether the loaders counted fewer batches on one of these ranks."""
    finding = uneven_shards(recording, stopped=True)
    return finding is not None and not set(finding.culprits).isdisjoint(ranks)
