"""The ordinals of sends and receives, so that each send finds its receive among those between the same ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from ddpnb.reports.dumps.columns import COMPLETED, DROPPED
from ddpnb.reports.dumps.windows import Own


@dataclass
class _Stream:
    """The messages of one rank to, or from, one other rank: their entries, and how many of them are completed."""

    places: list[int] = field(default_factory=list[int])
    completed: int = 0


def turns(ranks: Mapping[int, tuple[Own, int]]) -> dict[int, dict[int, int]]:
    """The ordinals of messages.

    Args:
        ranks: of each rank its entries, and how many earlier ones were overwritten.

    Returns:
        rank -> entry -> its ordinal among the messages to, or from, the same rank. Where earlier entries were overwritten,
        the last completed send and the last completed receive are taken for one message.
    """
    streams: dict[tuple[str, int, int], dict[int, _Stream]] = defaultdict(lambda: defaultdict(_Stream))
    for rank, (own, _) in ranks.items():
        for place, key in _messages(rank, own):
            stream = streams[key][rank]
            stream.places.append(place)
            stream.completed += own.columns.state[place] == COMPLETED
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for sides in streams.values():
        whole = not any(ranks[rank][1] for rank in sides)
        most = max(stream.completed for stream in sides.values())
        for rank, stream in sides.items():
            before = 0 if whole else most - stream.completed
            found[rank].update((place, before + turn) for turn, place in enumerate(stream.places, 1))
    return found


def _messages(rank: int, own: Own) -> list[tuple[int, tuple[str, int, int]]]:
    keys: dict[int, tuple[str, int, int]] = {}
    for call, row in enumerate(own.table.rows):
        ranks = own.groups[row.group].ranks
        if row.message and 0 <= row.peer < len(ranks):
            peer = ranks[row.peer]
            ends = (rank, peer) if row.signature.op == "send" else (peer, rank)
            keys[call] = (own.groups[row.group].key, *ends)
    if not keys:
        return []
    columns = own.columns
    return [
        (place, keys[call])
        for place, call in enumerate(columns.calls)
        if call in keys and columns.state[place] != DROPPED
    ]
