"""Ranks by what they hold, and which of them is named."""

from __future__ import annotations

import math

import pytest

from ddpnb.recording.split import by_value, split


def test_ranks_by_value_in_the_order_in_which_they_come():
    assert list(by_value([(2, "b"), (0, "a"), (1, "b"), (0, "c")]).items()) == [("b", [2, 1]), ("a", [0]), ("c", [0])]
    assert by_value(()) == {}


@pytest.mark.parametrize(
    ("values", "sides", "culprits"),
    [
        ({0: "a", 1: "a", 2: "b"}, ((0, 1), (2,)), (2,)),
        ({0: "b", 1: "a", 2: "a"}, ((1, 2), (0,)), (0,)),
        ({0: "a", 1: "a", 2: "b", 3: "c"}, ((0, 1), (2,), (3,)), ()),
        ({0: "a", 1: "a", 2: "b", 3: "c", 4: "d"}, ((0, 1), (2,), (3,), (4,)), ()),
        ({0: "a", 1: "a", 2: "a", 3: "b", 4: "c"}, ((0, 1, 2), (3,), (4,)), (3, 4)),
        ({0: None, 1: 1.0, 2: 1.0}, ((1, 2), (0,)), (0,)),
        ({0: "a", 1: "b"}, ((0,), (1,)), ()),
        ({5: "a", 3: "b"}, ((3,), (5,)), ()),
        ({0: 1, 1: 2, 2: 3}, ((0,), (1,), (2,)), ()),
        ({0: "a", 1: "a"}, ((0, 1),), ()),
        ({0: "a"}, ((0,),), ()),
        ({}, (), ()),
    ],
)
def test_only_a_majority_tells_which_side_is_odd(values, sides, culprits):
    found = split(values)
    assert (found.sides, found.culprits) == (sides, culprits)
    assert found.tied == (len(sides) > 1 and not culprits)


@pytest.mark.parametrize(("absent", "culprits"), [(0, (0,)), (1, ()), (-1, (0,))])
def test_ranks_of_which_nothing_is_known_may_be_on_any_side(absent, culprits):
    assert split({0: "a", 1: "b", 2: "b"}, absent).culprits == culprits


@pytest.mark.parametrize(
    ("values", "changed", "culprits"),
    [
        ({0: "a", 1: "b"}, [0], (0,)),
        ({0: "a", 1: "b"}, [1], (1,)),
        ({0: "a", 1: "b"}, [], ()),
        ({0: "a", 1: "b"}, [0, 1], ()),
        ({0: "a", 1: "b", 2: "c"}, [1, 2], (1, 2)),
        ({0: "a", 1: "b", 2: "a"}, [0, 2], (1,)),
    ],
)
def test_in_a_tie_the_ranks_own_past_tells(values, changed, culprits):
    assert split(values).blamed(changed) == culprits


@pytest.mark.parametrize(("known", "culprits"), [([0, 1], (0,)), ([0], ()), ([1], ()), ([], ())], ids=str)
def test_a_rank_without_a_recorded_past_leaves_a_tie_open(known, culprits):
    assert split({0: "a", 1: "b"}).blamed([0], known) == culprits
    assert split({0: "a", 1: "b", 2: "b"}).blamed([1], known) == (0,)  # a majority needs no past


def test_not_a_number_on_all_ranks_is_alike():
    """Each is another object, and none equals itself."""
    assert not split({rank: float("nan") for rank in range(4)}).differs
    assert split({0: math.nan, 1: 0.1, 2: 0.1}).culprits == (0,)


def test_values_that_cannot_be_counted_are_compared_by_their_text():
    assert split({0: ["a"], 1: ["a"], 2: ["b"]}).culprits == (2,)
    assert not split({0: {"a": 1}, 1: {"a": 1}}).differs
