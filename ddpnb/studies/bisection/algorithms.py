"""The search, as plain code over a test of one configuration: halving, of values in order once, of a set again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

Answer = Literal["bad", "good", "other", "skip"]


def minimal_set(
    fails: Callable[[Sequence[str], Sequence[str]], bool], candidates: Sequence[str], *, one_way: bool = False
) -> tuple[str, ...]:
    """A smallest set that fails: without any one of them it does not, as far as more components never repair a failure.

    The shortest failing beginning of the candidates is found by halving; its last member is needed. What is before it is
    halved from the other side, so that the candidates shrink towards each other, and so on until those found fail alone.
    For d of n about d * log2(n / d) + 2d tests.

    Args:
        fails: whether it fails with these on; also gets the candidates that are left. It is not asked about all candidates,
            nor about none.
        candidates: that fail together. A component comes after those that it requires.
        one_way: only beginnings are tried, never ends: an end has all on that its components require, so that it would
            say nothing about these.

    Example:
        >>> minimal_set(lambda on, *_: {"b", "e"} <= set(on), "abcdefgh")
        ('e', 'b')
    """
    needed: list[str] = []
    left = list(candidates)

    def ask(length: int, lengths: range) -> Answer:
        return "bad" if fails([*needed, *left[:length]], [*needed, *left[: lengths.stop - 1]]) else "good"

    while left and not (needed and fails(needed, [*needed, *left])):
        *before, last = left[: first_bad(ask, 0, len(left)).start]
        needed.append(last)
        left = before if one_way else before[::-1]
    return tuple(needed)


def first_bad(ask: Callable[[int, range], Answer], good: int, bad: int) -> range:
    """The places among which the first bad one is: one place, or more where those between cannot be judged.

    Args:
        ask: the answer at a place; also gets the places that are left. ``other`` and ``skip``: it cannot be judged.
        good: a place known to be good.
        bad: a later one known to be bad.

    Example:
        >>> first_bad(lambda place, *_: "bad" if place >= 5 else "good", 0, 8)
        range(5, 6)
    """
    unknown: set[int] = set()
    while True:
        middle = (good + bad) // 2
        near = (place for offset in range(bad - good) for place in (middle - offset, middle + offset))
        place = next((place for place in near if good < place < bad and place not in unknown), None)
        if place is None:
            return range(good + 1, bad + 1)
        answer = ask(place, range(good + 1, bad + 1))
        if answer == "bad":
            bad = place
        elif answer == "good":
            good = place
        else:
            unknown.add(place)
