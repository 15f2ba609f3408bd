"""What was recorded of the start-up of a rank."""

from __future__ import annotations

from ddpnb.facts.once import once
from ddpnb.model.events.startup import InitProcessGroup, Joining
from ddpnb.model.recording import RankRecord, Recording


def address_of(record: RankRecord) -> str:
    """The rendezvous address of this rank, at its last init_process_group or init_rpc."""
    starts = record.events(Joining)
    return starts[-1].address if starts else ""


@once
def inits(recording: Recording) -> dict[int, InitProcessGroup]:
    """The last init_process_group of each rank."""
    return {rank: starts[-1] for rank, record in recording.ranks.items() if (starts := record.events(InitProcessGroup))}


def claim_of(record: RankRecord) -> int:
    """The rank that a process claimed when it last joined others; its own rank when that is unknown."""
    starts = record.events(Joining)
    return starts[-1].rank if starts and starts[-1].rank is not None else record.rank


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
