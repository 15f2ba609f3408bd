"""Ranks by what they hold: the one comparison of values over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

V = TypeVar("V")


def by_value(pairs: Iterable[tuple[int, V]]) -> dict[V, list[int]]:
    """The ranks of each value, both in the order in which they come.

    Example:
        >>> by_value({0: "gloo", 1: "nccl", 2: "gloo"}.items())
        {'gloo': [0, 2], 'nccl': [1]}
    """
    found: dict[V, list[int]] = {}
    for rank, value in pairs:
        found.setdefault(value, []).append(rank)
    return found


@dataclass(frozen=True, slots=True)
class Split:
    """The ranks in groups that hold the same: the largest side first, then by the lowest rank.

    ``absent``: how many more ranks belong to them, of which it is not known what they hold: any side may have them.
    """

    sides: tuple[tuple[int, ...], ...]
    absent: int = 0

    @property
    def differs(self) -> bool:
        return len(self.sides) > 1

    @property
    def tied(self) -> bool:
        """Whether no side is the majority: the numbers of ranks then do not show which side is at fault."""
        return self.differs and 2 * len(self.sides[0]) <= sum(map(len, self.sides)) + self.absent

    @property
    def culprits(self) -> tuple[int, ...]:
        """The ranks outside of the majority; none in a tie."""
        return () if self.tied else self.odd

    @property
    def odd(self) -> tuple[int, ...]:
        """The ranks outside of the largest side, majority or not."""
        return tuple(sorted(rank for side in self.sides[1:] for rank in side))

    def blamed(self, changed: Iterable[int], known: Iterable[int] | None = None) -> tuple[int, ...]:
        """The culprits; in a tie those ranks that changed against their own past, if only some did.

        Args:
            changed: ranks that differ from their own past.
            known: ranks whose past is recorded; all of them if left out. Whether a rank without
                a recorded past changed is unknown, so a tie then stays open.
        """
        ranks = {rank for side in self.sides for rank in side}
        own = ranks.intersection(changed)
        whole = known is None or ranks.issubset(known)
        return tuple(sorted(own)) if self.tied and whole and len(own) < len(ranks) else self.culprits


def split(values: Mapping[int, object], absent: int = 0) -> Split:
    """The ranks by their values; ``absent``: how many more ranks there are, of which none is known."""
    groups = by_value((rank, countable(values[rank])) for rank in sorted(values))
    sides = sorted(groups.values(), key=lambda side: (-len(side), side[0]))
    return Split(tuple(map(tuple, sides)), max(0, absent))


def countable(value: object) -> object:
    """A value by which ranks can be counted: "not a number" is the same everywhere, though it equals nothing."""
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value if value == value else "not a number"  # noqa: PLR0124
