"""Meetings: one collective (or message) on all its ranks, and which rank arrived last."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal, NamedTuple

from ddpnb.model.calls import Call, CallState, Site

_FROM_ROOT = frozenset({"broadcast", "scatter"})
_TO_ROOT = frozenset({"gather", "reduce"})
_TOGETHER = 0.1  # of the time from the first arrival to the last: arrivals within it of the last count as last too
MOST_BLAMED = 4  # ranks that share the blame for one wait, at most


class Claim(NamedTuple):
    """The main thread of ``rank`` stood in the call from ``at`` to ``end``.

    ``certain``: it surely continued at ``end``. ``waits_only``: nothing is known of the time after
    the last rank had come. ``over``: the collective was completed by ``end``.
    """

    rank: int
    at: int
    end: int
    site: Site
    certain: bool = False
    waits_only: bool = False
    over: bool = True


class Meeting:
    """The members, their arrivals, and the claims to settle once all have arrived.

    In a broadcast the others wait for the root alone, in a reduction to a root the root alone waits,
    and a receive waits for its send; in all other collectives everybody waits for everybody.
    """

    __slots__ = ("arrived", "claims", "ended", "group", "hosts", "key", "latest", "members", "needs", "root", "seq")

    def __init__(self, key: Hashable, call: Call) -> None:
        """The meeting with this key (of ``key_of``), as one of its calls describes it."""
        self.key = key
        self.group, self.seq = call.group, call.seq
        self.members = call.group.ranks
        self.needs: Literal["all", "root", "at root"] = "all"
        self.root: int | None = None
        self.arrived: dict[int, int] = {}
        self.claims: list[Claim] = []  # cannot be divided before the others arrive
        self.hosts: list[Claim] = []  # of calls that blocked no host: only late arrivals are known
        self.ended = 0
        self.latest: tuple[int, tuple[int, ...]] | None = None  # when the last ranks arrived, and which, once known
        root = call.signature.root
        if call.is_p2p and isinstance(key, tuple):
            self.members, self.needs, self.root = (key[1], key[2]), "root", key[1]
        elif root is not None and 0 <= root < len(self.members) and call.op in _FROM_ROOT | _TO_ROOT:
            self.needs, self.root = "root" if call.op in _FROM_ROOT else "at root", self.members[root]

    @staticmethod
    def key_of(call: Call, rank: int, group: int) -> Hashable | None:
        """What the calls of one meeting have in common; groups are known by numbers. None if it cannot be known."""
        if call.seq and not call.is_p2p:
            return (group, call.seq) if rank in call.group.ranks else None
        if call.peer < 0 or not call.turn or call.op == "recv_any_source":
            return None
        source, target = (rank, call.peer) if call.op == "send" else (call.peer, rank)
        return group, source, target, call.tag, call.turn

    @property
    def complete(self) -> bool:
        return len(self.arrived) >= len(self.members)

    @property
    def over(self) -> bool:
        """Whether it is settled."""
        return self.complete and self.ended >= len(self.members)

    def ready(self, rank: int) -> bool:
        """Whether all ranks that this rank waits for have arrived."""
        if self.needs == "root" and self.root is not None:
            return rank == self.root or self.root in self.arrived
        return self.complete or (self.needs == "at root" and rank != self.root)

    def missing(self, rank: int) -> tuple[int, ...]:
        """The ranks that this rank still waits for."""
        if self.ready(rank):
            return ()
        if self.needs == "root" and self.root is not None:
            return (self.root,)
        return tuple(member for member in self.members if member not in self.arrived)

    def last(self, rank: int) -> tuple[int, tuple[int, ...]]:
        """When the last awaited rank arrived, and which one; (0, ()) if this rank waits for none.

        To be asked when it is ready.
        """
        if self.needs == "root":
            return (0, ()) if rank == self.root or self.root is None else (self.arrived[self.root], (self.root,))
        if self.needs == "at root" and rank != self.root:
            return 0, ()
        if self.latest is None:
            at = max(self.arrived.values())
            limit = at - _TOGETHER * (at - min(self.arrived.values()))
            self.latest = at, tuple(one for one, when in self.arrived.items() if when >= limit)
        at, late = self.latest
        if self.arrived.get(rank, 0) >= at:
            return 0, ()
        if rank in late:  # it arrived among the last: only later arrivals made it wait
            late = tuple(one for one in late if self.arrived[one] == at)
        return at, late[:MOST_BLAMED]

    def come(self, rank: int, at: int) -> None:
        self.arrived[rank], self.latest = at, None

    def withdraw(self, rank: int) -> None:
        """The call never reached its peers."""
        self.arrived.pop(rank, None)
        self.latest = None

    @property
    def spread(self) -> int:
        """From the first to the last, in nanoseconds."""
        return max(self.arrived.values()) - min(self.arrived.values()) if self.complete else 0


def blocks_host(call: Call) -> bool:
    """Whether waiting for this call blocks the Python thread: on a GPU it only orders streams."""
    return call.signature.device == "cpu"


def seen_by_peers(call: Call) -> bool:
    return call.state.seen_by_peers and call.state is not CallState.DROPPED and call.entered_ns > 0
