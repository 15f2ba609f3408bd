"""One collective (or message) on all its ranks while its calls are read: when each rank arrived, and which one last."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from ddpnb.recording.calls import Call, CallState, Site
from ddpnb.recording.collectives import Direction, direction_of, message_key, root_of

_TOGETHER = 0.1  # of the time from the first arrival to the last: arrivals within it of the last count as last too
MOST_BLAMED = 4  # ranks that share the blame for one wait, at most


class Claim(NamedTuple):
    """The main thread of ``rank`` stood in the call from ``at`` to ``end``.

    ``certain``: it surely continued at ``end``. ``waits_only``: nothing is known of the time after
    the last rank had arrived. ``over``: the collective was completed by ``end``.
    """

    rank: int
    at: int
    end: int
    site: Site
    certain: bool = False
    waits_only: bool = False
    over: bool = True


class TimedCollective:
    """The expected ranks, their arrivals, and the claims to settle once all have arrived.

    A receive waits for its send as for the root of a broadcast.
    """

    __slots__ = (
        "arrived", "claims", "direction", "ended", "expected_ranks", "group", "hosts", "key", "latest", "root", "seq",
    )  # fmt: skip

    def __init__(self, key: Hashable, call: Call) -> None:
        """The collective with this key (of ``key_of``), as one of its calls describes it."""
        self.key = key
        self.group, self.seq = call.group, call.seq
        self.expected_ranks = call.group.ranks
        self.root = root_of(call)
        self.direction = direction_of(call.op) if self.root is not None else Direction.ALL_TO_ALL
        self.arrived: dict[int, int] = {}
        self.claims: list[Claim] = []  # cannot be divided before the others arrive
        self.hosts: list[Claim] = []  # of calls that blocked no host: only late arrivals are known
        self.ended = 0
        self.latest: tuple[int, tuple[int, ...]] | None = None  # when the last ranks arrived, and which, once known
        if call.is_p2p and isinstance(key, tuple):
            self.expected_ranks, self.root, self.direction = key[1:3], key[1], Direction.FROM_ROOT

    @staticmethod
    def key_of(call: Call, rank: int, group: int) -> Hashable | None:
        """What the calls of one collective have in common; groups are known by numbers. None if it cannot be known."""
        if call.seq and not call.is_p2p:
            return (group, call.seq) if rank in call.group.ranks else None
        return message_key(call, rank, group)

    @property
    def complete(self) -> bool:
        return len(self.arrived) >= len(self.expected_ranks)

    @property
    def over(self) -> bool:
        """Whether it is settled."""
        return self.complete and self.ended >= len(self.expected_ranks)

    def ready(self, rank: int) -> bool:
        """Whether all ranks that this rank waits for have arrived."""
        if self.direction is Direction.FROM_ROOT:
            return rank == self.root or self.root in self.arrived
        return self.complete or (self.direction is Direction.TO_ROOT and rank != self.root)

    def missing_ranks(self, rank: int) -> tuple[int, ...]:
        """The ranks that this rank still waits for."""
        if self.ready(rank):
            return ()
        if self.direction is Direction.FROM_ROOT and self.root is not None:
            return (self.root,)
        return tuple(member for member in self.expected_ranks if member not in self.arrived)

    def last(self, rank: int) -> tuple[int, tuple[int, ...]]:
        """When the last awaited rank arrived, and which one; (0, ()) if this rank waits for none.

        To be asked when it is ready.
        """
        if self.direction is Direction.FROM_ROOT:
            return (0, ()) if rank == self.root or self.root is None else (self.arrived[self.root], (self.root,))
        if self.direction is Direction.TO_ROOT and rank != self.root:
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

    def arrive(self, rank: int, at: int) -> None:
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
