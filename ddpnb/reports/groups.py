"""The process groups of a job: their members as far as its files say them, and which of several with the same members.

Dumps list the groups of each rank by name (``DumpedGroups``); lines of logs name a group, a rank in it, or nothing (``Groups``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddpnb.recording import members
from ddpnb.recording.calls import Call, Group
from ddpnb.recording.names import given_name, one_line
from ddpnb.reports import facts as reported
from ddpnb.reports.facts import GroupName, Speaker

MOST_RANKS = members.MOST_MEMBERS  # a number above is no rank
_MOST_INFERRED = 1 << 16
DEFAULT = "0"  # torch's name of the default group
Configured = tuple[str, str, Mapping[str, Any]]  # name, label and members of a group


def is_default(name: str, label: str) -> bool:
    """Whether a group is that of all ranks."""
    return label == "default_pg" or (not label and name in ("", DEFAULT))


def _order(name: str) -> tuple[int, str]:
    """Torch counts groups: ``"2"`` before ``"10"``, and names with a hash behind them."""
    return (int(name), "") if re.fullmatch(r"\d{1,9}", name) else (1 << 30 if name else -1, name)


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
    if len(known) < 2 or max(known[-1][0], size) >= _MOST_INFERRED:
        return ()
    (place, rank), (last, highest) = known[0], known[-1]
    step, rest = divmod(highest - rank, last - place)
    first = rank - step * place
    if rest or step < 1 or first < 0 or any(one != first + step * at for at, one in known):
        return ()
    return tuple(first + step * place for place in range(max(size, last + 1)))


# -- of dumps


@dataclass(frozen=True, slots=True)
class Names:
    """The groups that one rank names.

    Args:
        config: name -> (label, members); no members: not known.
        used: name -> label, of those that have calls.
        counted: their names are numbers that each process counts for itself (versions 1.x): only their order says
            something.
    """

    config: Mapping[str, tuple[str, tuple[int, ...]]]
    used: Mapping[str, str]
    counted: bool = False


@dataclass
class DumpedGroups:
    """The groups that the dumps of all ranks name.

    Args:
        names: of each rank.
        notes: what is inferred, in sentences.
    """

    names: Mapping[int, Names]
    size: int = 0
    size_known: bool = False
    notes: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self._lists = _Lists()
        self._pooled: dict[str, dict[int, None]] = defaultdict(dict)  # name -> lists of members
        self._users: dict[str, list[int]] = defaultdict(list)
        for rank, own in sorted(self.names.items()):
            for name, (label, ranks) in own.config.items():
                if ranks:
                    self._pooled[name][self._lists.number(ranks)] = None
                    # All groups of gloo are called "", and the last one that was made is listed.
                    self.size_known |= bool(name) and is_default(name, label)
            for name in own.used:
                self._users[name].append(rank)
        self.size = max([*self.names, *map(max, self._lists.every)], default=-1) + 1
        self._everyone = self._lists.number(tuple(range(self.size)))
        self._observed: dict[str, int] = {}
        members = {rank: self._members(rank, own) for rank, own in self.names.items()}
        alike: dict[int, set[str]] = defaultdict(set)
        for rank, found in members.items():
            if not self.names[rank].counted:
                for name, ranks in found.items():
                    alike[ranks].add(name)
        ordered = {
            ranks: {name: place for place, name in enumerate(sorted(named, key=_order))}
            for ranks, named in alike.items()
        }
        self._known: dict[tuple[int, int, str, str], Group] = {}
        self._first: dict[Group, Group] = {}
        self._groups = {rank: self._of_rank(rank, found, ordered) for rank, found in members.items()}
        self._named: dict[str, set[Group]] = defaultdict(set)
        for found in self._groups.values():
            for name, group in found.items():
                self._named[name].add(group)
        if self._observed:
            shown = ", ".join(sorted(self._observed, key=_order)[:8]) + (", ..." if len(self._observed) > 8 else "")
            self.notes.append(
                f"The dumps do not name the members of these process groups: {shown}. Taken are the ranks with calls in them."
            )

    def of(self, rank: int, name: str) -> Group:
        """The group that a rank names."""
        return self._groups[rank][name]

    def named(self, name: str) -> int:
        """How many groups have this name."""
        return len(self._named.get(name, ()))

    def _members(self, rank: int, own: Names) -> dict[str, int]:
        return {
            name: self._ranks(rank, name, own)
            for name in dict.fromkeys((*own.config, *own.used))
            if name in own.used or own.config[name][1]
        }

    def _ranks(self, rank: int, name: str, own: Names) -> int:
        label, said = own.config.get(name, ("", ()))
        if said:
            return self._lists.number(said)
        pooled = [ranks for ranks in self._pooled.get(name, ()) if rank in self._lists.sets[ranks]]
        if len(pooled) == 1:
            return pooled[0]
        if is_default(name, own.used.get(name) or label):
            return self._everyone
        if name not in self._observed:
            self._observed[name] = self._lists.number(tuple(self._users[name]))
        return self._observed[name]

    def _of_rank(
        self, rank: int, members: Mapping[str, int], ordered: Mapping[int, Mapping[str, int]]
    ) -> dict[str, Group]:
        own = self.names[rank]
        before: dict[int, int] = defaultdict(int)
        groups: dict[str, Group] = {}
        for name, ranks in sorted(members.items(), key=lambda item: _order(item[0])):
            ordinal = before[ranks] if own.counted else ordered[ranks][name]
            before[ranks] += 1
            label = own.used.get(name) or own.config.get(name, ("", ()))[0]
            if not label and is_default(name, label):
                label = "default_pg"
            elif not label and name in self._observed:
                label = f"group {name}"  # by its members it would be named wrongly
            groups[name] = self._group(ranks, ordinal, name, label)
        return groups

    def _group(self, ranks: int, ordinal: int, name: str, label: str) -> Group:
        """The group, under the name by which a rank called it first."""
        described = ranks, ordinal, name, label
        if described not in self._known:
            group = Group(self._lists.every[ranks], ordinal, name, label)
            self._known[described] = self._first.setdefault(group, group)
        return self._known[described]


class _Lists:
    """The different lists of members, numbered: with thousands of ranks, comparing them each time takes longest."""

    def __init__(self) -> None:
        self.every: list[tuple[int, ...]] = []
        self.sets: list[frozenset[int]] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._seen: dict[int, tuple[int, tuple[int, ...]]] = {}  # which tuple -> its number, and the tuple, to keep it

    def number(self, ranks: tuple[int, ...]) -> int:
        seen = self._seen.get(id(ranks))
        if seen is None:
            number = self._numbers.setdefault(ranks, len(self.every))
            if number == len(self.every):
                self.every.append(ranks)
                self.sets.append(frozenset(ranks))
            seen = self._seen[id(ranks)] = number, ranks
        return seen[0]


def names(config: Sequence[Configured], used: Sequence[tuple[str, str, str]], version: str) -> Names:
    """The groups that a dump names.

    Args:
        config: as ``fields.config`` gives it.
        used: name, label and number of those that have calls.
        version: of the dump.
    """
    known = {
        one_line(name): (given_name("" if label == "undefined" else label), members.read(written))
        for name, label, written in config
    }
    return Names(known, {name: label for name, label, _ in used}, version.startswith("1."))
