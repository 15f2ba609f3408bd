"""The members of a group as runs of evenly spaced ranks.

Each of thousands of ranks names the thousands of members of its groups: written as a list, and read as a list of its own, this
takes time and memory by the square of the ranks. As runs, ``range(16384)`` is one entry, and equal members are one tuple.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

Run = tuple[int, int, int]  # first, last, step
MOST_MEMBERS = 1 << 17
_LONG = 64  # members: shorter lists are written as they are


def as_runs(ranks: Sequence[int]) -> list[Run]:
    """First, last and step of each run of evenly spaced numbers.

    Example:
        >>> as_runs([0, 1, 2, 3, 8, 16, 24])
        [(0, 3, 1), (8, 24, 8)]
    """
    found: list[Run] = []
    place, count = 0, len(ranks)
    while place < count:
        first = ranks[place]
        end = place + 1
        step = ranks[end] - first if end < count else 0
        while step > 0 and end < count and ranks[end] - ranks[end - 1] == step:
            end += 1
        found.append((first, ranks[end - 1], max(step, 1)))
        place = end
    return found


def written(ranks: Sequence[int]) -> dict[str, Any]:
    """Members for JSON: as runs where these are shorter.

    Example:
        >>> written(range(16_384))
        {'runs': [(0, 16383, 1)]}
    """
    runs = as_runs(ranks) if len(ranks) >= _LONG else ()
    return {"runs": runs} if 0 < 3 * len(runs) < len(ranks) else {"ranks": list(ranks)}


def read(value: Mapping[str, Any]) -> tuple[int, ...]:
    """What ``written`` was given; equal runs give the same tuple.

    Raises:
        TypeError, ValueError: these are no members, or very many.
    """
    runs = value.get("runs")
    if not runs:
        return tuple(int(rank) for rank in value.get("ranks", ()))
    return _of_runs(tuple((int(first), int(last), int(step)) for first, last, step in runs))


@lru_cache(4096)
def _of_runs(runs: tuple[Run, ...]) -> tuple[int, ...]:
    ranges = [range(first, last + 1, step) for first, last, step in runs]
    if sum(map(len, ranges)) > MOST_MEMBERS:
        raise ValueError("more members than a group has")
    return tuple(chain.from_iterable(ranges))
