"""Conversions to SyncBatchNorm that are too late, or on some ranks only."""

from __future__ import annotations

from ddpnb.facts.digests import split
from ddpnb.facts.places import known
from ddpnb.model import phrases
from ddpnb.model.events.models import ModelWrapped, SyncBatchNormConverted
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import RankRecord, Recording

BATCHNORM_SYNC = FindingType("DDP412", "batchnorm-sync")


def find(recording: Recording) -> Finding | None:
    """DDP412: converted after wrapping (the wrapper does not know the new layers), or on some ranks only."""
    conversions = {rank: record.events(SyncBatchNormConverted) for rank, record in recording.ranks.items()}
    late = {rank: [c for c in made if _after_wrap(recording.ranks[rank], c)] for rank, made in conversions.items()}
    culprits = tuple(rank for rank, made in sorted(late.items()) if made)
    if culprits:
        return Finding(
            BATCHNORM_SYNC,
            f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'converts', 'convert')} BatchNorm to SyncBatchNorm after the model was "
            "wrapped: the wrapper keeps the old layers.",
            culprits,
            (),
            None,
            known((rank, late[rank][-1].site) for rank in culprits),
            tuple(f"Rank {rank} converted {late[rank][-1].layers} layers after wrapping." for rank in culprits[:8]),
            "Convert, then wrap: model = SyncBatchNorm.convert_sync_batchnorm(model); model = DistributedDataParallel(model).",
        )
    wrapped = {rank: record for rank, record in recording.ranks.items() if any(m.wrapper for m in record.models)}
    kinds = {
        rank: sum(t.kind == "SyncBatchNorm" for m in record.models for t in m.tensors)
        or sum(conversion.layers for conversion in conversions[rank])
        for rank, record in wrapped.items()
        if not record.events_forgotten
    }
    if len(kinds) > 1 and len(set(kinds.values())) > 1:
        apart = split(kinds)
        sides = apart.sides if apart.tied else ()
        odd = apart.odd
        others = tuple(rank for rank in sorted(kinds) if rank not in odd)
        places = [
            (r, conversions[r][-1].site if conversions[r] else wrapped[r].models[0].site) for r in (*odd, *others)
        ]
        return Finding(
            BATCHNORM_SYNC,
            "BatchNorm is converted to SyncBatchNorm differently on the ranks: "
            f"{phrases.by_side(apart.sides, lambda rank: str(kinds[rank]))} (tensors of SyncBatchNorm layers).",
            apart.culprits,
            () if sides else others,
            None,
            known(places),
            (
                *(f"Rank {rank}: {count}." for rank, count in sorted(kinds.items())[:8]),
                *phrases.undecided(sides),
            ),
            "Convert on all ranks or on none, before the model is wrapped.",
            sides=sides,
        )
    return None


def _after_wrap(record: RankRecord, conversion: SyncBatchNormConverted) -> bool:
    if conversion.wrapped:
        return True
    wraps = record.events(ModelWrapped, state="done")
    # A model that is converted after a wrapping and never wrapped again.
    return bool(wraps) and all(wrap.began_ns < conversion.began_ns for wrap in wraps)
