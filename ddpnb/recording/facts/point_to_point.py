"""Sends and receives: how many each rank has made, and whether a call has its counterpart."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from ddpnb.recording.calls import Call, CallState
from ddpnb.recording.recording import RankRecord


class Channels:
    """The point-to-point calls of all ranks that their peers may have seen, looked up by what they are.

    A receive needs the sends of all other ranks, and every rank may be in one: each rank's calls are indexed
    once.
    """

    def __init__(self, ranks: Mapping[int, RankRecord]) -> None:
        self._ranks = ranks
        self._members: dict[str, frozenset[int]] = {}
        self._forgetful = [rank for rank, record in ranks.items() if record.forgotten]
        self._made: dict[tuple[str, int, int, str], dict[int, list[Call]]] = defaultdict(dict)
        for rank, record in ranks.items():
            for call in record.calls:
                if call.is_p2p and call.state.seen_by_peers:
                    self._made[call.op, call.peer, call.tag, call.group.key].setdefault(rank, []).append(call)

    def others(self, call: Call, rank: int) -> frozenset[int]:
        """The other members of a call's group."""
        key = call.group.key
        if key not in self._members:
            self._members[key] = frozenset(call.group.ranks)
        return self._members[key] - {rank}

    def sent(self, rank: int, call: Call, doubtful: bool) -> float:
        """How many sends to this rank its group has made in all, on the tag of ``call``; ``doubtful`` as in ``made``."""
        others = self.others(call, rank)
        senders = self._made.get(("send", rank, call.tag, call.group.key), {})
        if doubtful and any(other in others and other not in senders for other in self._forgetful):
            return math.inf
        return sum(self._count(calls, doubtful) for sender, calls in senders.items() if sender in others)

    def made(self, rank: int, op: str, peer: int, call: Call, doubtful: bool) -> float:
        """How many calls ``op`` with ``peer`` a rank has made in all, on the group and tag of ``call``.

        Args:
            doubtful: count also what may have been made: sends whose Work was discarded, and calls where none is recorded
                but older ones are forgotten (infinite: it is unknown, so no rank is reported as blocked).
        """
        record = self._ranks.get(rank)
        if record is None:
            return 0
        calls = self._made.get((op, peer, call.tag, call.group.key), {}).get(rank)
        if not calls:
            return math.inf if doubtful and record.forgotten else 0
        return self._count(calls, doubtful)

    def beside(self, rank: int, op: str, peer: int, call: Call) -> dict[tuple[int, str], tuple[int, Call]]:
        """The calls ``op`` with ``peer`` that a rank has made with other tags or in other groups: how many, and the last one."""
        return {
            (tag, made[rank][-1].group.label): (self._count(made[rank], doubtful=True), made[rank][-1])
            for (name, other, tag, key), made in self._made.items()
            if (name, other) == (op, peer) and (tag, key) != (call.tag, call.group.key) and rank in made
        }

    def _count(self, calls: list[Call], doubtful: bool) -> int:
        lost = 0 if doubtful else sum(call.state is CallState.DROPPED for call in calls)
        return (max(call.turn for call in calls) if calls[-1].turn else len(calls)) - lost


def same_tag(one: Call, other: Call) -> bool:
    return one.tag == other.tag and one.group.key == other.group.key


def same_channel(one: Call, other: Call) -> bool:
    return (one.op, one.peer) == (other.op, other.peer) and same_tag(one, other)
