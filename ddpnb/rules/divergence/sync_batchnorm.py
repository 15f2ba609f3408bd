"""Conversions to SyncBatchNorm that are too late, or on some ranks only."""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.facts.snapshot import Snapshot
from ddpnb.model.events.models import ModelWrapped, SyncBatchNormConverted
from ddpnb.model.recording import RankRecord
from ddpnb.rules.rule import Draft, differ, each, rule, say


@rule("DDP412", "batchnorm-sync")
def sync_batchnorm(snap: Snapshot) -> Iterable[Draft]:
    """Converted after wrapping (the wrapper does not know the new layers), or on some ranks only."""
    late = snap.ranks.of(_after_wrap)
    if late:
        yield Draft(
            say(
                "{who} [converts|convert] BatchNorm to SyncBatchNorm after the model was wrapped: the wrapper keeps the old layers.",
                late,
            ),
            tuple(late),
            "Convert, then wrap: model = SyncBatchNorm.convert_sync_batchnorm(model); model = DistributedDataParallel(model).",
            late,
            evidence=each(late, lambda rank: f"Rank {rank} converted {late[rank].layers} layers after wrapping."),
        )
        return
    counts = snap.ranks.of(_tensors)
    made = snap.last(SyncBatchNormConverted)
    yield from differ(
        counts,
        at={rank: made.get(rank, snap.ranks[rank].models[0]) for rank in counts},
        one="{who} [has|have] {mine} tensors of SyncBatchNorm layers, {others} {theirs}.",
        tie="BatchNorm is converted to SyncBatchNorm differently on the ranks: {sides} tensors of SyncBatchNorm layers.",
        line="{}",
        remedy="Convert on all ranks or on none, before the model is wrapped.",
    )


def _tensors(record: RankRecord) -> int | None:
    """Of SyncBatchNorm layers in wrapped models; else the converted layers."""
    if record.events_forgotten or not any(model.wrapper for model in record.models):
        return None
    held = sum(tensor.kind == "SyncBatchNorm" for model in record.models for tensor in model.tensors)
    return held or sum(conversion.layers for conversion in record.events(SyncBatchNormConverted))


def _after_wrap(record: RankRecord) -> SyncBatchNormConverted | None:
    """The last conversion of a model that was wrapped before it and never again."""
    wraps = record.events(ModelWrapped, state="done")
    last = max((wrap.began_ns for wrap in wraps), default=None)
    late = (
        one
        for one in record.events(SyncBatchNormConverted)
        if one.wrapped or (last is not None and last < one.began_ns)
    )
    return max(late, key=lambda one: one.began_ns, default=None)
