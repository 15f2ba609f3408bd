"""What was recorded of the start-up of a rank."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from ddpnb.recording.events.startup import InitProcessGroup, Joining
from ddpnb.recording.facts.once import once
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.recording import RankRecord, Recording


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


def world_size(standing: Standing) -> int | None:
    """The number of ranks that a rank in init_process_group or init_rpc expects."""
    return standing.event.world_size if isinstance(standing.event, Joining) else None


def wrong_claims(standings: Mapping[int, Standing], starting: Sequence[int]) -> tuple[int, ...]:
    """Processes that claim a rank that does not exist; else those that claim the rank of another process."""
    claims = {rank: claim_of(standings[rank].record) for rank in starting}
    sizes = {rank: world_size(standings[rank]) or len(standings) for rank in starting}
    outside = tuple(rank for rank in starting if not 0 <= claims[rank] < sizes[rank])
    claimed = Counter(claims.values())
    return outside or tuple(rank for rank in starting if claims[rank] != rank and claimed[claims[rank]] > 1)


_REFUSED = re.compile(r"connectFullMesh.*Connection refused", re.DOTALL)


def stale_start(recording: Recording) -> tuple[int, InitProcessGroup, tuple[int, ...]] | None:
    """(a rank, its start, the ranks that had not joined then): refused at an address that an earlier run had left.

    In a store that an earlier attempt of the launcher has used, all may have joined: its addresses are there until they are
    written again.
    """
    for rank, record in sorted(recording.ranks.items()):
        failed = record.events(InitProcessGroup, state="failed")
        if not failed or record.ending is None or not _REFUSED.search(record.ending.message[:20_000]):
            continue
        late = tuple(
            other
            for other, one in sorted(recording.ranks.items())
            if not any(start.began_ns < failed[-1].ended_ns for start in _since(one, failed[-1]))
        )
        if late or failed[-1].attempts_before:
            return rank, failed[-1], late
    return None


def _since(record: RankRecord, failed: InitProcessGroup) -> list[InitProcessGroup]:
    """A rank's starts that may be the counterpart of one that failed: not those that ended before it began."""
    return [s for s in record.events(InitProcessGroup) if s.state == "open" or s.ended_ns >= failed.began_ns]
