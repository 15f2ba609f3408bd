"""What start-up and new groups have recorded of themselves, read so that nonsense does no harm."""

from __future__ import annotations

from ddpnb.model.recording import Phase, RankRecord


def starts_of(record: RankRecord) -> list[Phase]:
    return [phase for phase in record.phases if phase.name == "init_process_group"]


def address_of(record: RankRecord) -> str:
    """Where this rank looks for the others, at its last init_process_group."""
    starts = starts_of(record)
    return str(starts[-1].facts.get("address", "")) if starts else ""


def claim_of(record: RankRecord) -> int:
    """The rank that a process claimed at its last init_process_group; its own when that is not known."""
    starts = starts_of(record)
    claimed = as_int(starts[-1].facts.get("rank")) if starts else None
    return record.rank if claimed is None else claimed


def members_of(phase: Phase) -> list[int]:
    """The ranks that a new_group was asked for; empty when what was recorded makes no sense."""
    ranks = phase.facts.get("ranks")
    if not isinstance(ranks, (list, tuple)):
        return []
    if set(map(type, ranks)) == {int}:  # what sound ranks have recorded, and these lists may be long
        return list(ranks)
    found = [as_int(rank) for rank in ranks]
    return [rank for rank in found if rank is not None]


_RARELY_S = 90.0


def knocks_within(waited: float) -> float:
    """Seconds in which a rank that has looked for a store in vain for ``waited`` seconds looks again, at the latest.

    Torch looks ever more rarely (2.13; 22 s after it had looked for 40 s, measured): until then nobody can say
    that ranks do not meet.
    """
    return min(1.5 * max(0.0, waited), _RARELY_S)


def as_int(value: object) -> int | None:
    try:
        return int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
