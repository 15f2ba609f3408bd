"""The missing ranks: of a collective, of start-up, of a new group.

All ranks that wait in the same call wait for the same ranks. These are computed once for each call, and the waits
share one set: comparing every rank with every other one takes minutes with thousands of ranks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable

from ddpnb.recording.calls import Call
from ddpnb.recording.collectives import collective_of
from ddpnb.recording.events.startup import Joining, NewGroup
from ddpnb.recording.facts.init_facts import address_of, claim_of
from ddpnb.recording.facts.once import once
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.recording import Recording

_NOBODY = frozenset[int]()


@once
def missing_ranks(recording: Recording) -> MissingRanks:
    """Those of a Recording, computed once: all waits share the sets."""
    return MissingRanks(recording)


class MissingRanks:
    """The missing ranks of one Recording, cached."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._of_calls: dict[tuple[str, int], frozenset[int]] = {}
        self._here: dict[tuple[type[Joining], int], dict[str, frozenset[int]]] = {}
        self._expected: dict[int, frozenset[int]] = {}
        self._unclaimed: dict[Hashable, frozenset[int]] = {}
        self._made: _Made | None = None

    def in_call(self, call: Call, rank: int) -> frozenset[int]:
        """The missing ranks of the collective, besides this one."""
        place = call.group.key, call.seq
        if place not in self._of_calls:
            self._of_calls[place] = collective_of(self._recording, call).missing_ranks
        return without(self._of_calls[place], rank)

    # -- start-up

    def at_start(self, standing: Standing) -> frozenset[int]:
        """The ranks that a rank in init_process_group or init_rpc waits for: until every rank is claimed by a process there."""
        event, record = standing.event, standing.record
        assert isinstance(event, Joining)
        size = min(event.world_size or self._recording.world_size, 1 << 16)
        turn, address = (type(event), len(record.events(type(event)))), address_of(record)
        if turn not in self._here:
            self._here[turn] = self._gather(*turn)
        here = self._here[turn].get(address, _NOBODY)
        if standing.rank in here:
            place = turn, address, size
            if place not in self._unclaimed:
                self._unclaimed[place] = self._not_claimed(here, size)
            found = self._unclaimed[place]
        else:
            found = self._not_claimed(here | ({standing.rank} & self._recording.ranks.keys()), size)
        # A process that claims a wrong rank is itself what it waits for.
        return (without(found, standing.rank) or frozenset({standing.rank})) if found else found

    def _gather(self, kind: type[Joining], turn: int) -> dict[str, frozenset[int]]:
        """The ranks that reached their call of this kind number ``turn``, by rendezvous address."""
        here: dict[str, set[int]] = defaultdict(set)
        for rank, record in self._recording.ranks.items():
            starts = record.events(kind)
            if len(starts) >= turn or (starts and record.events_forgotten):
                state = starts[-1 if record.events_forgotten else turn - 1].state
                # One that completed it and has ended did so without the others (another backend).
                if state == "open" or (state == "done" and record.ending is None):
                    here[address_of(record)].add(rank)
        return {address: frozenset(ranks) for address, ranks in here.items()}

    def _not_claimed(self, here: frozenset[int], size: int) -> frozenset[int]:
        """The absent ranks, and those present that claim the rank of another; none if all ranks are claimed."""
        ranks = self._recording.ranks
        if size not in self._expected:
            self._expected[size] = frozenset([*range(size), *(rank for rank in ranks if rank < size)])
        claims = {other: claim_of(ranks[other]) for other in sorted(here)}
        if len(claims) >= size and set(range(size)) <= set(claims.values()):
            return _NOBODY
        owner: dict[int, int] = {}
        for other, claim in claims.items():
            owner.setdefault(claim, other)
        wrong = {o for o, claim in claims.items() if not 0 <= claim < size or owner[claim] != o}
        return (self._expected[size] - here) | wrong

    # -- new groups

    def in_group(self, standing: Standing) -> frozenset[int]:
        """The members that have not called the same new_group, and all ranks that made another one with its name."""
        assert isinstance(standing.event, NewGroup)
        self._made = self._made or _Made(self._recording)
        return self._made.missing(standing, standing.event)


class _Made:
    """All new_group calls of all ranks. Torch pairs them by members and name, and its names count all groups."""

    def __init__(self, recording: Recording) -> None:
        self._counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)  # asked for these members -> rank
        self._named: dict[str, dict[tuple[int, ...], set[int]]] = defaultdict(lambda: defaultdict(set))
        self._known: dict[Hashable, tuple[frozenset[int], frozenset[int], frozenset[int]]] = {}
        self._ranks = recording.ranks
        self._came: dict[tuple[tuple[int, ...], str], set[int]] = defaultdict(set)  # and under this name
        for rank, record in recording.ranks.items():
            for made in record.events(NewGroup):
                self._counts[made.ranks][rank] += 1
                self._came[made.ranks, made.name].add(rank)
                if made.name and not made.local:
                    self._named[made.name][made.ranks].add(rank)

    def missing(self, standing: Standing, made: NewGroup) -> frozenset[int]:
        members, name, local = made.ranks, made.name, made.local
        turn = sum(other.ranks == members for other in standing.record.events(NewGroup)) if local else 0
        place = members, name, local, turn
        if place not in self._known:
            if local:  # named by its members alone
                whole = not any(self._ranks[m].events_forgotten for m in {*members, standing.rank} & self._ranks.keys())
                absent = self._behind(members, turn) if whole else self._elsewhere(members)
            else:
                absent = frozenset(members) - self._came.get((members, name), set())
            # Other lists with the same name never match it.
            lists = self._named[name].items() if name and not local else ()
            others = _NOBODY.union(*(ranks for asked, ranks in lists if asked != members))
            self._known[place] = absent, others, absent | others
        absent, others, both = self._known[place]
        return both if standing.rank not in absent else absent - {standing.rank} | others

    def _behind(self, members: tuple[int, ...], turn: int) -> frozenset[int]:
        """The members that have asked for such a group less often."""
        counts = self._counts.get(members, {})
        return frozenset(member for member in members if counts.get(member, 0) < turn)

    def _elsewhere(self, members: tuple[int, ...]) -> frozenset[int]:
        """The members that are not in such a call: it returns on no rank before all have called it."""
        here = {
            rank
            for rank, record in self._ranks.items()
            if any(made.ranks == members for made in record.events(NewGroup, state="open"))
        }
        return frozenset(members) - here


def without(ranks: frozenset[int], rank: int) -> frozenset[int]:
    """The set without the rank; shared sets are copied only if the rank is in them."""
    return ranks - {rank} if rank in ranks else ranks
