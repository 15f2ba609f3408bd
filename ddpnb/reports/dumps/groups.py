"""The process groups of dumps: their members, as far as any dump says them, and which of several with the same members."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddpnb.recording import members
from ddpnb.recording.calls import Group
from ddpnb.recording.names import given_name, one_line

MOST_RANKS = members.MOST_MEMBERS  # a number above is no rank
Configured = tuple[str, str, Mapping[str, Any]]  # name, label and members of a group


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
class Groups:
    """The groups of all ranks.

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
    known = {one_line(name): (_label(label), members.read(written)) for name, label, written in config}
    return Names(known, {name: label for name, label, _ in used}, version.startswith("1."))


def _label(label: str) -> str:
    return given_name("" if label == "undefined" else label)


def is_default(name: str, label: str) -> bool:
    """Whether a group is that of all ranks."""
    return label == "default_pg" or (not label and name in ("", "0"))


def _order(name: str) -> tuple[int, str]:
    """Torch counts groups: ``"2"`` before ``"10"``, and names with a hash behind them."""
    return (int(name), "") if re.fullmatch(r"\d{1,9}", name) else (1 << 30 if name else -1, name)
