"""The two searches over a test that is a plain function."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Collection, Sequence

import pytest

from ddpnb.studies.bisection.algorithms import first_bad, minimal_set


def counted(names: Sequence[str], culprits: Collection[str], search: Callable[..., Collection[str]]) -> int:
    """How many different configurations a search tries; what follows from other answers is not tried."""
    tried: set[frozenset[str]] = set()
    good: list[frozenset[str]] = []
    bad = [frozenset(names)]

    def fails(on: Sequence[str], *_: object) -> bool:
        asked = frozenset(on)
        if not asked or any(asked <= known for known in good):
            return False
        if not any(asked >= known for known in bad):
            tried.add(asked)
            (bad if set(culprits) <= asked else good).append(asked)
        return set(culprits) <= asked

    assert set(search(fails, names)) == set(culprits)
    return len(tried)


@pytest.mark.parametrize("size", range(1, 6))
def test_every_set_is_found(size):
    names = "abcde"[:size]
    for count in range(1, size + 1):
        for culprits in itertools.combinations(names, count):
            counted(names, culprits, minimal_set)


def test_the_number_of_tests_stays_below_the_bound():
    chance = random.Random(7)
    over = 0
    for _ in range(300):
        names = [str(number) for number in range(chance.randint(2, 64))]
        culprits = chance.sample(names, chance.randint(1, min(4, len(names))))
        d = len(culprits)
        over += counted(names, culprits, minimal_set) > d * math.ceil(math.log2(len(names) / d)) + 3 * d
    assert over == 0


def test_what_was_found_is_smallest():
    asked: list[list[str]] = []

    def fails(on: Sequence[str], *_: object) -> bool:
        asked.append(list(on))
        return {"b", "e"} <= set(on)

    assert set(minimal_set(fails, "abcdefgh")) == {"b", "e"}
    assert all(on for on in asked)


@pytest.mark.parametrize(("count", "tests"), [(1, 0), (2, 1), (8, 3), (64, 6), (1024, 10)])
def test_halving_takes_as_many_tests_as_there_are_bits(count, tests):
    for culprit in {1, 2, count // 2 + 1, count - 1, count} & set(range(1, count + 1)):
        asked: list[int] = []

        def ask(place: int, *_: object, culprit: int = culprit, asked: list[int] = asked):
            asked.append(place)
            return "bad" if place >= culprit else "good"

        assert first_bad(ask, 0, count) == range(culprit, culprit + 1)
        assert len(asked) == len(set(asked)) == tests


def test_a_place_that_cannot_be_judged_is_passed_by():
    def ask(place: int, *_: object):
        return "skip" if place == 4 else "bad" if place >= 6 else "good"

    assert first_bad(ask, 0, 8) == range(6, 7)


def test_places_that_cannot_be_judged_at_the_border_stay_undecided():
    def ask(place: int, *_: object):
        return "other" if place in (4, 5) else "bad" if place >= 6 else "good"

    assert first_bad(ask, 0, 8) == range(4, 7)
