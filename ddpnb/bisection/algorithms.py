"""The two searches, as plain code over a test of one configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

Answer = Literal["bad", "good", "other", "skip"]

_AT_LEAST = 0.15  # of the candidates fall away where a split follows an earlier one


def minimal_set(
    fails: Callable[[Sequence[str], int, Sequence[str]], bool], candidates: Sequence[str], *, one_way: bool = False
) -> tuple[str, ...]:
    """A smallest set that fails: without any one of them it does not, as far as more components never repair a failure.

    The shortest failing beginning of the candidates is found by halving; its last member is needed. What is before it is
    halved from the other side, so that the candidates shrink towards each other, and so on until those found fail alone.
    A beginning is divided where an earlier search has divided it, if that is not too uneven: culprits that stand side by
    side are then found sooner. For d of n about d * log2(n / d) + 2d tests.

    Args:
        fails: whether it fails with these on; also gets how many tests are expected from here on, this one included,
            and the candidates that are left. It is not asked about all candidates, nor about none.
        candidates: that fail together. A component comes after those that it requires.
        one_way: only beginnings are tried, never ends: an end has all on that its components require, so that it would
            say nothing about these.

    Example:
        >>> minimal_set(lambda on, *_: {"b", "e"} <= set(on), "abcdefgh")
        ('e', 'b')
    """
    needed: list[str] = []
    left = list(candidates)
    splits: set[str] = set()  # where the search before this one divided
    from_the_end = False
    while left and not (needed and fails(needed, 2 + _halvings(len(left)), [*needed, *left])):
        low, high = 0, len(left)
        path: set[str] = set()
        while high - low > 1:
            middle = _middle(left, low, high, splits)
            part = left[middle:] if from_the_end else left[:middle]
            inside = left[low:] if from_the_end else left[:high]
            bad = fails([*needed, *part], _halvings(high - low) + (1 if high > 1 else 0), [*needed, *inside])
            if not bad:
                path.add(left[middle])
            if bad == from_the_end:
                low = middle
            else:
                high = middle
        needed.append(left[low])
        left = left[low + 1 :] if from_the_end else left[:low]
        splits, from_the_end = path, not (from_the_end or one_way)
    return tuple(needed)


def _middle(left: Sequence[str], low: int, high: int, splits: set[str]) -> int:
    middle = (low + high) // 2
    least = (high - low) * _AT_LEAST
    known = [place for place in range(low + 1, high) if left[place] in splits]
    nearest = min(known, key=lambda place: abs(place - middle), default=middle)
    return nearest if least <= nearest - low <= high - low - least else middle


def first_bad(ask: Callable[[int, int, range], Answer], good: int, bad: int) -> range:
    """The places among which the first bad one is: one place, or more where those between cannot be judged.

    Args:
        ask: the answer at a place; also gets how many tests are expected from here on, this one included, and the places
            that are left. ``other`` and ``skip``: it cannot be judged.
        good: a place known to be good.
        bad: a later one known to be bad.

    Example:
        >>> first_bad(lambda place, *_: "bad" if place >= 5 else "good", 0, 8)
        range(5, 6)
    """
    unknown: set[int] = set()
    while True:
        middle = (good + bad) // 2
        open_places = (place for offset in range(bad - good) for place in (middle - offset, middle + offset))
        place = next((one for one in open_places if good < one < bad and one not in unknown), None)
        if place is None:
            return range(good + 1, bad + 1)
        answer = ask(place, _halvings(bad - good), range(good + 1, bad + 1))
        if answer == "bad":
            bad = place
        elif answer == "good":
            good = place
        else:
            unknown.add(place)


def _halvings(count: int) -> int:
    return math.ceil(math.log2(count)) if count > 1 else 0
