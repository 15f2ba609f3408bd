"""The process groups of a report: their members as far as the files say them, and the global ranks of those who speak."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from ddpnb.recording.calls import Call, Group
from ddpnb.reports import facts as reported
from ddpnb.reports.facts import GroupName, Speaker

_MOST_MEMBERS = 1 << 16
DEFAULT = "0"  # torch's name of the default group


def canonical(group: GroupName) -> str:
    """The name under which all files mean the same group."""
    return DEFAULT if group.name in ("", DEFAULT) or group.label == "default_pg" else group.name


class Groups:
    """The groups that occur in facts.

    Args:
        facts: of all files.
        rank_of: the global rank of a speaker, None where it is not known.
        size: the number of ranks.

    Attributes:
        observed: the keys of groups of which no file names the members: taken are those that use them.
    """

    def __init__(self, facts: Iterable[reported.Fact], rank_of: Callable[[Speaker], int | None], size: int) -> None:
        self._rank_of = rank_of
        self._members: dict[str, tuple[int, ...]] = {DEFAULT: tuple(range(size))}
        self._labels: dict[str, str] = {DEFAULT: "default_pg"}
        self._groups: dict[str, Group] = {}
        seen: dict[str, set[int]] = defaultdict(set)
        places: dict[str, dict[int, int]] = defaultdict(dict)
        said = {DEFAULT}
        for fact in facts:
            if isinstance(fact, reported.Calls):
                self._learn(fact.calls)
            elif (group := reported.group_of(fact)) is not None:
                name = canonical(group)
                self._labels[name] = self._labels.get(name) or group.label
                if group.ranks and name != DEFAULT:
                    self._members[name] = group.ranks
                    said.add(name)
                rank = rank_of(reported.speaker_of(fact))
                if rank is not None:
                    seen[name].add(rank)
                    if group.rank >= 0:
                        places[name][group.rank] = rank
        for name, ranks in seen.items():  # at least those that use it are members
            self._members.setdefault(name, regular(places[name]) or tuple(sorted(ranks)))
        alike: dict[tuple[int, ...], int] = defaultdict(int)
        for group in self._groups.values():
            alike[group.ranks] = max(alike[group.ranks], group.ordinal + 1)
        for name in sorted(self._members.keys() - self._groups.keys(), key=_order):
            ranks = self._members[name]
            label = self._labels.get(name) or f"group {name}"
            self._groups[name] = Group(ranks, alike[ranks], name, label)
            alike[ranks] += 1
        self.observed = tuple(sorted(group.key for name, group in self._groups.items() if name not in said))

    def _learn(self, calls: Iterable[Call]) -> None:
        for group in {id(call.group): call.group for call in calls}.values():
            name = canonical(GroupName(group.name, group.label))
            if name not in self._groups:
                self._groups[name] = group
                self._members[name] = group.ranks

    def of(self, group: GroupName) -> Group:
        """The group of this name."""
        name = canonical(group)
        return self._groups.get(name) or Group(group.ranks, name=name, label=group.label)

    def global_rank(self, fact: reported.Fact) -> int | None:
        """The rank that a fact is about: as the file names it, else by its rank in the group that the fact names."""
        rank, group = self._rank_of(reported.speaker_of(fact)), reported.group_of(fact)
        if rank is None and group is not None:
            members = self.of(group).ranks
            return members[group.rank] if 0 <= group.rank < len(members) else None
        return rank


def _order(name: str) -> tuple[int, str]:
    """Torch counts groups: ``"2"`` before ``"10"``."""
    number = re.fullmatch(r"\d{1,9}", name)
    return (int(number[0]), "") if number else (1 << 30, name)


def regular(places: Mapping[int, int], size: int = 0) -> tuple[int, ...]:
    """The members of a group, by the places of some of them in it, where their ranks are evenly spaced; else none.

    Args:
        places: the rank at each place that is known.
        size: at least so many members.

    Example:
        >>> regular({0: 4, 2: 6, 3: 7})
        (4, 5, 6, 7)
    """
    known = sorted(places.items())
    if len(known) < 2 or max(known[-1][0], size) >= _MOST_MEMBERS:
        return ()
    (place, rank), (last, highest) = known[0], known[-1]
    step, rest = divmod(highest - rank, last - place)
    first = rank - step * place
    if rest or step < 1 or first < 0 or any(one != first + step * at for at, one in known):
        return ()
    return tuple(first + step * place for place in range(max(size, last + 1)))
