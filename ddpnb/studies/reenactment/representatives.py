"""Which ranks of a large job are re-enacted: a few of each kind, such that who waits for whom stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ddpnb.recording.calls import Group
from ddpnb.recording.findings import Finding
from ddpnb.recording.recording import Recording
from ddpnb.recording.split import by_value
from ddpnb.studies.reenactment.behaviour import Behaviour, Made, missing

_OF_A_SIDE = 2  # ranks: a majority must stay visible


def role(group: Group) -> str:
    """What groups of one kind have alike: the tensor-parallel groups of a job are many."""
    return group.label or f"{len(group.ranks)} ranks #{group.ordinal}"


def classes(everyone: Mapping[int, Behaviour]) -> dict[int, tuple[int, ...]]:
    """rank -> all ranks that behave as it does from where the ranks part, itself included."""
    alike = by_value((rank, _kind(behaviour)) for rank, behaviour in sorted(everyone.items()))
    return {rank: ranks for ranks in map(tuple, alike.values()) for rank in ranks}


def _kind(behaviour: Behaviour) -> object:
    open_ = tuple(_place(one) for one in behaviour.made if not one.completed)
    last: dict[str, int] = {}
    for one in behaviour.made:
        if one.seq:
            last[role(one.group)] = one.seq
    making = behaviour.making is not None
    return (
        behaviour.how,
        making,
        behaviour.message,
        open_,
        tuple(sorted(last.items())),
        behaviour.silent,
        behaviour.absent,
    )


def _place(one: Made) -> tuple[object, ...]:
    signature = one.call.signature
    return role(one.group), one.seq, one.call.op, signature.agreed, one.call.state


class Choice:
    """The chosen ranks, at most ``most`` of them."""

    def __init__(self, recording: Recording, everyone: Mapping[int, Behaviour], most: int) -> None:
        self._recording, self._everyone, self._most = recording, everyone, most
        self._missing: dict[tuple[str, int], frozenset[int]] = {}
        self.ranks: list[int] = []

    @property
    def full(self) -> bool:
        return len(self.ranks) >= self._most

    def add(self, rank: int) -> None:
        """Choose a rank, and then one that it waits for, and so on."""
        while rank in self._everyone and rank not in self.ranks and not self.full:
            self.ranks.append(rank)
            absent = self.awaited(rank)
            if not absent or not absent.isdisjoint(self.ranks):
                return
            rank = min(absent)

    def awaited(self, rank: int) -> frozenset[int]:
        """The ranks that this one waits for."""
        call = self._everyone[rank].call
        if call is None:
            return frozenset()
        if call.message is not None:
            return missing(self._recording, call, self._everyone) - {rank}
        place = call.group.key, call.seq
        if place not in self._missing:
            self._missing[place] = missing(self._recording, call, self._everyone)
        return self._missing[place] - {rank}

    def awaits(self, rank: int) -> bool:
        """Whether a rank waits for one that is chosen."""
        return not self.awaited(rank).isdisjoint(self.ranks)

    def add_some(self, ranks: Iterable[int], wanted: int, of_class: Mapping[int, tuple[int, ...]]) -> None:
        """Choose so many of each class among these ranks: first those that need no further rank."""
        ranks = sorted(ranks)
        among = set(ranks)
        counts = Counter(of_class[r][0] for r in self.ranks if r in among)  # of the class by its first rank
        for needs_none in (True, False):
            for rank in ranks:
                kind = of_class.get(rank)
                if kind is None or counts[kind[0]] >= wanted or rank in self.ranks or self.full:
                    continue
                absent = self.awaited(rank)
                if not needs_none or not absent or not absent.isdisjoint(self.ranks):
                    self.add(rank)
                    counts[kind[0]] += rank in self.ranks


def chosen(
    recording: Recording, everyone: Mapping[int, Behaviour], finding: Finding | None, most: int
) -> tuple[int, ...]:
    """The ranks to re-enact, in their order: all, or of a large job at most ``most``.

    Args:
        recording: what is known.
        everyone: what each rank did.
        finding: the root cause, whose ranks come first.
        most: the number of live ranks.
    """
    if len(everyone) <= most:
        return tuple(sorted(everyone))
    of_class = classes(everyone)
    choice = Choice(recording, everyone, most)
    if finding is not None:
        for side in (finding.culprits, *finding.sides):
            choice.add_some([r for r in side if r in everyone], 1 if finding.culprits else _OF_A_SIDE, of_class)
        waiting = [r for r in finding.waiting if r in everyone]
        choice.add_some([r for r in waiting if choice.awaits(r)], _OF_A_SIDE, of_class)
        choice.add_some(waiting, 1, of_class)
    kinds = {kind[0]: kind for kind in of_class.values()}
    for kind in sorted(kinds.values(), key=lambda one: (-len(one), one[0])):
        choice.add_some(kind, _OF_A_SIDE if len(kind) > len(everyone) // 2 else 1, of_class)
    for rank in sorted(everyone):  # a world of one rank has no peers
        if len(choice.ranks) >= 2:
            break
        choice.add(rank)
    return tuple(sorted(choice.ranks))
