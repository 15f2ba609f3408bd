"""One collective on all its ranks: who called it, who is missing, and whether the calls match.

The words are those of PyTorch's flight recorder (``torch.distributed.flight_recorder.components.types``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property

from ddpnb.recording.calls import NO_SITE, UNKNOWN_REDUCTION, UNNAMED, Call, CallState, Group, Signature, Site
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.split import split


class MatchState(Enum):
    """How the calls of one collective compare."""

    FULLY_MATCHED = auto()
    COLLECTIVE_TYPE_MISMATCH = auto()
    SIZE_OR_SYNTAX_MISMATCH = auto()
    COLLECTIVE_DTYPE_MISMATCH = auto()
    ARGUMENT_MISMATCH = auto()  # reduce operation, root, splits or memory layout
    UNDECIDED = auto()  # ranks are missing; the calls of the others match


class Direction(Enum):
    """Where the data of a collective goes, and so which rank waits for which."""

    ALL_TO_ALL = auto()  # every rank waits for every other one
    FROM_ROOT = auto()  # the others wait for the root
    TO_ROOT = auto()  # the root waits for the others


_DIRECTIONS = {
    "broadcast": Direction.FROM_ROOT,
    "scatter": Direction.FROM_ROOT,
    "gather": Direction.TO_ROOT,
    "gather_into_tensor": Direction.TO_ROOT,
    "reduce": Direction.TO_ROOT,
}


def direction_of(op: str) -> Direction:
    return _DIRECTIONS.get(op, Direction.ALL_TO_ALL)


def root_of(call: Call) -> int | None:
    """The rank of the root; None for a collective without one, and where it is no member of the group."""
    root, ranks = call.signature.root, call.group.ranks
    return ranks[root] if root is not None and 0 <= root < len(ranks) else None


def needed_ranks(call: Call, rank: int, missing: frozenset[int]) -> frozenset[int]:
    """The missing ranks that a rank certainly waits for.

    It may need the others too, depending on the algorithm of the backend: a leaf of a broadcast needs the root
    certainly and its siblings possibly.
    """
    direction, root = direction_of(call.op), root_of(call)
    if direction is Direction.FROM_ROOT and root is not None:
        return missing & {root}
    return frozenset() if direction is Direction.TO_ROOT and rank != root else missing


def message_key(call: Call, rank: int, group: int) -> tuple[int, int, int, int, int] | None:
    """What a send and its receive have in common: (group, source, target, tag, ordinal); None if it is not known."""
    if call.peer < 0 or not call.turn or call.op == "recv_any_source":
        return None
    source, target = (rank, call.peer) if call.op == "send" else (call.peer, rank)
    return group, source, target, call.tag, call.turn


@dataclass(frozen=True)
class Collective:
    """One collective on all its ranks.

    Args:
        group: its process group.
        collective_seq_id: its number in the group, from 1.
        calls: the recorded call of each rank.
        records: what is known of all ranks.

    Example:
        >>> collective = collective_of(recording, call)
        >>> collective.match, collective.missing_ranks
        (<MatchState.UNDECIDED: 6>, frozenset({1}))
    """

    group: Group
    collective_seq_id: int
    calls: Mapping[int, Call]
    records: Mapping[int, RankRecord] = field(repr=False, compare=False)

    @property
    def expected_ranks(self) -> tuple[int, ...]:
        return self.group.ranks

    @cached_property
    def missing_ranks(self) -> frozenset[int]:
        """The expected ranks that have not handed it to their backends, or whose processes were stopped in it."""
        return frozenset(rank for rank in self.expected_ranks if not self._takes_part(rank))

    def _takes_part(self, rank: int) -> bool:
        record, call = self.records.get(rank), self.calls.get(rank)
        if record is None:
            return False
        if call is not None:
            stopped = record.process.activity == "stopped" and call.state.in_flight
            # torch ends a call on meta tensors before the backend: nothing is sent.
            return call.state.seen_by_peers and call.signature.device != "meta" and not stopped
        if record.reached.get(self.group.key, 0) >= self.collective_seq_id:
            return True
        last = next((c.seq for c in reversed(record.calls) if c.seq and c.group.key == self.group.key), None)
        # Later ones are recorded, or it may be older than all that are: assume that it was called.
        return last > self.collective_seq_id if last is not None else record.forgotten > 0 and not record.partial

    @cached_property
    def sides(self) -> tuple[tuple[int, ...], ...]:
        """The ranks, divided such that calls match within a side, the largest side first: several are a mismatch.

        Of sides of one size that with the lowest rank comes first: an order of display, no verdict.
        """
        named = [rank for rank in self.calls if self.calls[rank].op != UNNAMED]
        sides = split({rank: self._agreed(self.calls[rank].signature) for rank in named or self.calls}).sides
        if len(self._odd) == len(self.calls):
            return tuple((rank,) for rank in sides[0])
        if self._odd:
            return tuple(rank for rank in sides[0] if rank not in self._odd), tuple(sorted(self._odd))
        return sides

    @cached_property
    def unpaired(self) -> tuple[tuple[int, int, int, int], ...]:
        """The pairs of an all_to_all whose sizes do not fit: (source, target, what is sent, what is expected)."""
        alike = len({self._agreed(call.signature) for call in self.calls.values()}) == 1
        return _unpaired(self.calls) if alike else ()

    @cached_property
    def _odd(self) -> set[int]:
        """The ranks in most pairs that do not fit."""
        counts = Counter(rank for source, target, _, _ in self.unpaired for rank in {source, target})
        most = max(counts.values(), default=0)
        return {rank for rank, count in counts.items() if count == most}

    @property
    def odd_ranks(self) -> tuple[int, ...]:
        """The ranks of an all_to_all whose sizes alone do not fit those of the other ranks."""
        return tuple(sorted(self._odd)) if len(self._odd) < len(self.calls) else ()

    @cached_property
    def mismatched(self) -> bool:
        return not self._alike and len(self.sides) > 1

    def _agreed(self, signature: Signature) -> str:
        """What must be the same on every rank; without the reduction, where that of one rank is not known."""
        return signature.without_reduction if self._reduction_unknown else signature.agreed

    @cached_property
    def _reduction_unknown(self) -> bool:
        return any(f"|{UNKNOWN_REDUCTION}" in call.signature.agreed for call in self.calls.values())

    @property
    def _alike(self) -> bool:
        """Whether all calls are the same, in no pairs: so are nearly all, and sides need not be made of their ranks."""
        given = {id(call.signature): call.signature for call in self.calls.values()}.values()
        signatures = [one for one in given if one.op != UNNAMED]
        agreed = {one.agreed for one in signatures}
        if len(agreed) > 1:
            agreed = set(map(self._agreed, signatures))
        return len(agreed) == 1 and not any(one.in_splits or one.out_splits or one.out_shapes for one in given)

    @property
    def match(self) -> MatchState:
        """How the calls compare: those of the first and of the last side."""
        if not self.mismatched:
            return MatchState.UNDECIDED if self.missing_ranks else MatchState.FULLY_MATCHED
        one, other = (self.calls[self.sides[place][0]].signature for place in (0, -1))
        if one.op != other.op:
            return MatchState.COLLECTIVE_TYPE_MISMATCH
        if self._odd:
            return MatchState.ARGUMENT_MISMATCH
        if one.elements != other.elements and not (one.in_splits or one.out_splits):
            return MatchState.SIZE_OR_SYNTAX_MISMATCH
        return MatchState.ARGUMENT_MISMATCH if one.dtypes == other.dtypes else MatchState.COLLECTIVE_DTYPE_MISMATCH

    def sites(self, ranks: Iterable[int]) -> tuple[tuple[int, Site], ...]:
        """The lines of these ranks that called it, in this order, of those whose line is known."""
        made = ((rank, self.calls[rank].site) for rank in ranks if rank in self.calls)
        return tuple((rank, site) for rank, site in made if site != NO_SITE)

    @property
    def began_ns(self) -> int:
        return min(call.entered_ns for call in self.calls.values())

    @property
    def completed(self) -> bool:
        """Whether it neither blocks nor failed a rank that called it."""
        return all(call.state in (CallState.COMPLETED, CallState.DROPPED) for call in self.calls.values())


def _unpaired(calls: Mapping[int, Call]) -> tuple[tuple[int, int, int, int], ...]:
    """The pairs of an all_to_all in which what rank i sends to j is not what j expects from i."""
    ranks = next(iter(calls.values())).group.ranks
    members = [(place, rank, calls[rank].signature) for place, rank in enumerate(ranks) if rank in calls]
    if all(one.out_shapes is not None for _, _, one in members):
        sending = [(i, a, sent) for i, a, one in members if (sent := one.sends(len(ranks)))]
        expecting = [(j, b, expected) for j, b, one in members if (expected := one.expects(len(ranks)))]
    else:
        sending = [(i, a, one.in_splits) for i, a, one in members if one.in_splits]
        expecting = [(j, b, one.out_splits) for j, b, one in members if one.out_splits]
    if len(set[int]().union(*(sizes for _, _, sizes in (*sending, *expecting)))) < 2:
        return ()  # no sizes, or all alike: as many comparisons as there are pairs of ranks are saved
    return tuple(
        (a, b, sent[j], expected[i])
        for i, a, sent in sending
        for j, b, expected in expecting
        if j < len(sent) and i < len(expected) and sent[j] != expected[i]
    )


def call_in(record: RankRecord | None, group: Group, seq: int) -> Call | None:
    """The recorded call of a rank in one collective, searched from the last call back."""
    for call in reversed(record.calls) if record is not None and seq else ():
        if call.group.key == group.key and 0 < call.seq <= seq:
            return call if call.seq == seq else None
    return None


def collective_of(recording: Recording, call: Call) -> Collective:
    """The collective that a call is part of, read without those before it."""
    found = {rank: call_in(recording.ranks.get(rank), call.group, call.seq) for rank in call.group.ranks}
    made = {rank: own for rank, own in found.items() if own is not None}
    return Collective(call.group, call.seq, made, recording.ranks)


def collectives(recording: Recording) -> Mapping[str, Mapping[int, Collective]]:
    """All recorded collectives: key of the group -> ``collective_seq_id`` -> collective. Read once per Recording."""
    if collectives not in recording.known:
        calls: dict[str, dict[int, dict[int, Call]]] = defaultdict(lambda: defaultdict(dict))
        groups: dict[str, Group] = {}
        for rank, record in recording.ranks.items():
            for call in record.calls:
                if call.seq:
                    groups.setdefault(call.group.key, call.group)
                    calls[call.group.key][call.seq][rank] = call
        recording.known[collectives] = {
            key: {seq: Collective(groups[key], seq, made, recording.ranks) for seq, made in of_group.items()}
            for key, of_group in calls.items()
        }
    return recording.known[collectives]
