"""The ordinals of sends and receives, so that each send finds its receive among those between the same ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ddpnb.reports.dumps.entries import COMPLETED
from ddpnb.reports.dumps.tables import Dump

Channel = tuple[str, int, int]  # group, sender, receiver


def turns(dumps: Sequence[Dump], forgotten: Mapping[int, int]) -> dict[int, dict[int, int]]:
    """The ordinals of messages.

    Args:
        dumps: one of each rank.
        forgotten: how many earlier entries of each rank were overwritten.

    Returns:
        rank -> entry -> its ordinal among the messages to, or from, the same rank. Where earlier entries were overwritten,
        the last completed send and the last completed receive are taken for one message.
    """
    channels: dict[Channel, dict[Dump, list[int]]] = defaultdict(lambda: defaultdict(list))
    for dump in dumps:
        for place, channel in _messages(dump):
            channels[channel][dump].append(place)
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for sides in channels.values():
        completed = {
            dump: int(np.count_nonzero(dump.columns.state[places] == COMPLETED)) for dump, places in sides.items()
        }
        whole = not any(forgotten[dump.rank] for dump in sides)
        for dump, places in sides.items():
            before = 0 if whole else max(completed.values()) - completed[dump]
            found[dump.rank].update((place, before + turn) for turn, place in enumerate(places, 1))
    return found


def _messages(dump: Dump) -> Iterator[tuple[int, Channel]]:
    channels: dict[int, Channel] = {}
    for call, row in enumerate(dump.table.rows):
        group = dump.groups[row.group]
        if row.message and 0 <= row.peer < len(group.ranks):
            peer = group.ranks[row.peer]
            ends = (dump.rank, peer) if row.signature.op == "send" else (peer, dump.rank)
            channels[call] = (group.key, *ends)
    for place in dump.present.tolist() if channels else ():
        if (channel := channels.get(int(dump.columns.calls[place]))) is not None:
            yield place, channel
