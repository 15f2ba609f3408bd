"""Components with what they require, and values in order."""

from __future__ import annotations

import pytest

from ddpnb.bisection.space import Component, Probe, RangeSpace, SetSpace, space_from_json
from ddpnb.errors import UsageError


def test_what_a_component_requires_comes_first_and_is_on():
    space = SetSpace([Component("pinned", requires=("workers",)), Component("amp"), Component("workers")])
    assert space.names == ("workers", "pinned", "amp")
    assert space.probe(["pinned"]) == Probe(("workers", "pinned"))
    assert Probe(("pinned",)) not in space


@pytest.mark.parametrize(
    ("components", "said"),
    [
        ([], "nothing to vary"),
        ([Component("a"), Component("a")], "named twice"),
        ([Component("a", requires=("b",))], "which is not there"),
        ([Component("a", requires=("b",)), Component("b", requires=("a",))], "requires itself"),
    ],
)
def test_a_set_that_makes_no_sense_is_refused(components, said):
    with pytest.raises(UsageError, match=said):
        SetSpace(components)


@pytest.mark.parametrize(("values", "said"), [([1], "works and one that fails"), ([1, 2, 1], "stands twice")])
def test_a_range_that_makes_no_sense_is_refused(values, said):
    with pytest.raises(UsageError, match=said):
        RangeSpace("steps", values)


def test_a_range_that_is_too_long_is_refused():
    with pytest.raises(UsageError, match="more than 1,000,000"):
        RangeSpace("steps", range(10**12))


@pytest.mark.parametrize(
    "space",
    [
        SetSpace([Component("workers", "4"), Component("pinned", requires=("workers",))]),
        RangeSpace("steps", range(3, 90)),
        RangeSpace("commit", ["a", "b", "c"], "git"),
    ],
)
def test_a_space_survives_json(space):
    again = space_from_json(space.to_json())
    assert again.to_json() == space.to_json()
    assert again.start == space.start


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"kind": "set"},
        {"kind": "x", "name": "n", "values": [1, 2]},
        {"kind": "range", "name": "n", "values": {"low": 0, "high": 10**15}},
    ],
)
def test_json_that_is_no_space_is_refused(data):
    with pytest.raises((KeyError, TypeError, ValueError)):
        space_from_json(data)


def test_one_configuration_is_within_another():
    space = SetSpace([Component("amp"), Component("workers")])
    assert space.within(Probe(("amp",)), space.start) and not space.within(space.start, Probe(("amp",)))
    commits = RangeSpace("commit", ["c", "a", "b"], "git")
    assert commits.within(Probe(at="c"), Probe(at="b")) and not commits.within(Probe(at="b"), Probe(at="c"))
