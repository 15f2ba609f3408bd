"""The process groups of dumps: their members, as far as any dump says them, and which of several with the same members."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ddpnb.model.calls import Group
from ddpnb.model.names import given_name, one_line

MOST_RANKS = 1 << 17  # a number above is no rank


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
        self._pooled: dict[str, dict[tuple[int, ...], None]] = defaultdict(dict)
        self._users: dict[str, list[int]] = defaultdict(list)
        highest = max(self.names, default=-1)
        for rank, own in sorted(self.names.items()):
            for name, (label, ranks) in own.config.items():
                if ranks:
                    self._pooled[name][ranks] = None
                    highest = max(highest, *ranks)
                    # All groups of gloo are called "", and the last one that was made is listed.
                    self.size_known |= bool(name) and is_default(name, label)
            for name in own.used:
                self._users[name].append(rank)
        self.size = highest + 1
        self._everyone = tuple(range(self.size))
        self._observed: set[str] = set()
        members = {rank: self._members(rank, own) for rank, own in self.names.items()}
        alike: dict[tuple[int, ...], set[str]] = defaultdict(set)
        for rank, found in members.items():
            if not self.names[rank].counted:
                for name, ranks in found.items():
                    alike[ranks].add(name)
        ordered = {ranks: sorted(named, key=_order) for ranks, named in alike.items()}
        self._known: dict[Group, Group] = {}
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

    def _members(self, rank: int, own: Names) -> dict[str, tuple[int, ...]]:
        return {
            name: self._ranks(rank, name, own)
            for name in dict.fromkeys((*own.config, *own.used))
            if name in own.used or own.config[name][1]
        }

    def _ranks(self, rank: int, name: str, own: Names) -> tuple[int, ...]:
        label, said = own.config.get(name, ("", ()))
        if said:
            return said
        pooled = [ranks for ranks in self._pooled.get(name, ()) if rank in ranks]
        if len(pooled) == 1:
            return pooled[0]
        if is_default(name, own.used.get(name) or label):
            return self._everyone
        self._observed.add(name)
        return tuple(self._users[name])

    def _of_rank(
        self, rank: int, members: Mapping[str, tuple[int, ...]], ordered: Mapping[tuple[int, ...], Sequence[str]]
    ) -> dict[str, Group]:
        own = self.names[rank]
        before: dict[tuple[int, ...], int] = defaultdict(int)
        groups: dict[str, Group] = {}
        for name, ranks in sorted(members.items(), key=lambda item: _order(item[0])):
            ordinal = before[ranks] if own.counted else ordered[ranks].index(name)
            before[ranks] += 1
            label = own.used.get(name) or own.config.get(name, ("", ()))[0]
            if not label and is_default(name, label):
                label = "default_pg"
            elif not label and name in self._observed:
                label = f"group {name}"  # by its members it would be named wrongly
            group = Group(ranks, ordinal, name, label)
            groups[name] = self._known.setdefault(group, group)
        return groups


def names(config: Sequence[tuple[str, str, str]], used: Sequence[tuple[str, str, str]], version: str) -> Names:
    """The groups that a dump names.

    Args:
        config: name, label and members, as text.
        used: name, label and number of those that have calls.
        version: of the dump.
    """
    known = {one_line(name): (_label(label), ranks_in(ranks)) for name, label, ranks in config}
    return Names(known, {name: label for name, label, _ in used}, version.startswith("1."))


def _label(label: str) -> str:
    return given_name("" if label == "undefined" else label)


def is_default(name: str, label: str) -> bool:
    """Whether a group is that of all ranks."""
    return label == "default_pg" or (not label and name in ("", "0"))


@lru_cache(4096)
def ranks_in(text: str) -> tuple[int, ...]:
    """The members that a text lists; none if it lists anything else."""
    ranks = tuple(dict.fromkeys(int(number) for number in re.findall(r"\d{1,9}", text)))
    return ranks if all(rank < MOST_RANKS for rank in ranks) else ()


def _order(name: str) -> tuple[int, str]:
    """Torch counts groups: ``"2"`` before ``"10"``, and names with a hash behind them."""
    return (int(name), "") if re.fullmatch(r"\d{1,9}", name) else (1 << 30 if name else -1, name)
