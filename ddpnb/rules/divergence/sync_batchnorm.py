"""Conversions to SyncBatchNorm that are too late, or on some ranks only."""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.recording.events.models import ModelWrapped, SyncBatchNormConverted
from ddpnb.recording.facts.digests import members
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.recording import RankRecord
from ddpnb.rules.rule import Draft, differ, each, rule, say


@rule("DDP412", "batchnorm-sync")
def sync_batchnorm(snap: Snapshot) -> Iterable[Draft]:
    """Converted after wrapping (the wrapper does not know the new layers), or on some ranks only."""
    made = snap.last(SyncBatchNormConverted)
    late = snap.ranks.among(made).of(_after_wrap)
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
    wrapped = snap.ranks.of(lambda record: sum(bool(model.wrapper) for model in record.models) or None)
    first = min(wrapped.values(), default=0)  # what a rank wraps later it may convert later
    counts = snap.ranks.of(lambda record: _tensors(record, first))
    yield from differ(
        counts,
        at={rank: made.get(rank, snap.ranks[rank].models[0]) for rank in counts},
        one="{who} [has|have] {mine} tensors of SyncBatchNorm layers, {others} {theirs}.",
        tie="BatchNorm is converted to SyncBatchNorm differently on the ranks: {sides} tensors of SyncBatchNorm layers.",
        line="{}",
        absent=len(members(model for rank in counts for model in snap.ranks[rank].models) - counts.keys()),
        remedy="Convert on all ranks or on none, before the model is wrapped.",
    )


def _tensors(record: RankRecord, first: int) -> int | None:
    """Of SyncBatchNorm layers in the first wrapped models; else the layers that were converted before the last of them."""
    models = [model for model in record.models if model.wrapper][:first]
    if record.events_forgotten or not models:
        return None
    held = sum(tensor.kind == "SyncBatchNorm" for model in models for tensor in model.tensors)
    wraps = record.events(ModelWrapped)[:first]
    by = wraps[-1].began_ns if wraps else 0
    return held or sum(one.layers for one in record.events(SyncBatchNormConverted) if not wraps or one.began_ns <= by)


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
