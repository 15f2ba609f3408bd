"""Components with what they require, and values in order."""

from __future__ import annotations

import pytest

from ddpnb.errors import UsageError
from ddpnb.studies.bisection.space import Component, Probe, RangeSpace, SetSpace


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
