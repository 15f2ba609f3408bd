"""The recorded facts of start-up and new groups, read so that invalid values do no harm."""

from __future__ import annotations

from ddpnb.model.recording import Phase, RankRecord


def starts_of(record: RankRecord) -> list[Phase]:
    return [phase for phase in record.phases if phase.name == "init_process_group"]


def address_of(record: RankRecord) -> str:
    """The rendezvous address of this rank, at its last init_process_group."""
    starts = starts_of(record)
    return str(starts[-1].facts.get("address", "")) if starts else ""


def claim_of(record: RankRecord) -> int:
    """The rank that a process claimed at its last init_process_group; its own rank when that is unknown."""
    starts = starts_of(record)
    claimed = as_int(starts[-1].facts.get("rank")) if starts else None
    return record.rank if claimed is None else claimed


def members_of(phase: Phase) -> list[int]:
    """The ranks that were passed to new_group; empty when the record is invalid."""
    ranks = phase.facts.get("ranks")
    if not isinstance(ranks, (list, tuple)):
        return []
    if set(map(type, ranks)) == {int}:  # the usual case; these lists may be long
        return list(ranks)
    found = [as_int(rank) for rank in ranks]
    return [rank for rank in found if rank is not None]


_RARELY_S = 90.0


def knocks_within(waited: float) -> float:
    """The longest time until a rank that has tried to connect to a store for ``waited`` seconds tries again.

    The interval of torch grows (2.13; 22 s after 40 s of attempts, measured): only after it can it be said that
    ranks do not connect.
    """
    return min(1.5 * max(0.0, waited), _RARELY_S)


def as_int(value: object) -> int | None:
    try:
        return int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
