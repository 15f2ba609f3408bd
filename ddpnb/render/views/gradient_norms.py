"""Gradient norms of every rank, step by step, as recorded by the replica watch."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ddpnb.recording.recording import Recording


def gradient_norms(recording: Recording) -> Mapping[int, tuple[tuple[int, float], ...]]:
    """rank -> ``(optimizer steps before it, Euclidean norm of all gradients that were sampled in that step)``.

    All ranks sample the same tensors in the same step, so the norms of one step can be compared; where
    only a part of the tensors was sampled, norms of different steps cannot. Of several models the one
    with most samples is shown.
    """
    counts: dict[int, int] = {}
    for record in recording.ranks.values():
        for sample in record.samples:
            if sample.kind == "gradients":
                counts[sample.model] = counts.get(sample.model, 0) + 1
    if not counts:
        return {}
    model = max(counts, key=lambda number: (counts[number], -number))
    found: dict[int, tuple[tuple[int, float], ...]] = {}
    for rank, record in sorted(recording.ranks.items()):
        norms: list[tuple[int, float]] = []
        for sample in record.samples:
            if sample.kind == "gradients" and sample.model == model:
                parts = [one.norm for one in sample.digests.values() if one.norm is not None]
                if parts:
                    norms.append((sample.step, math.hypot(*parts)))
        if norms:
            found[rank] = tuple(norms)
    return found
