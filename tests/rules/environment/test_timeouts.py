"""Time-outs of groups that are probably not meant."""

from __future__ import annotations

import pytest

from ddpnb.rules.rules import environment
from tests.rules.environment.jobs import joined, recorded, some, the_finding
from tests.rules.recordings import line


def test_a_group_that_does_not_inherit_the_time_out():
    found = the_finding(recorded(lambda r: joined(timeout_s=60.0)(r).makes_group([0, 1], line(8), timeout_s=None)))
    assert (found.code, found.severity, found.culprits) == ("DDP317", "note", (0, 1, 2, 3))
    assert found.where == tuple((number, line(8)) for number in range(4))
    assert "60 s" in found.summary and "30 minutes" in found.summary


def test_it_is_a_warning_where_ranks_are_stuck():
    recording = recorded(lambda r: joined(timeout_s=60.0)(r).makes_group([0, 1], line(8), timeout_s=None))
    assert the_finding(recording, frozenset({0})).severity == "warning"


@pytest.mark.parametrize(
    ("world", "made"),
    [
        ({"timeout_s": 60.0}, {"timeout_s": 60.0}),
        ({"timeout_s": None}, {"timeout_s": None}),
        ({"timeout_s": 1800.0}, {"timeout_s": None}),
        ({"timeout_s": 3600.0}, {"timeout_s": None}),
        ({"timeout_s": "60"}, {"timeout_s": None}),
    ],
    ids=["its own", "the default", "as long as the default", "longer", "nonsense"],
)
def test_time_outs_that_are_as_they_should_be(world, made):
    assert environment(recorded(lambda r: joined(**world)(r).makes_group([0, 1], **made))) == []


@pytest.mark.parametrize(("seconds", "words"), [(4 * 3600.0, "4 hours"), (14 * 24 * 3600.0, "336 hours")])
def test_a_time_out_of_many_hours(seconds, words):
    found = the_finding(recorded(some((1, 2), joined(timeout_s=seconds), joined(timeout_s=600.0))))
    assert (found.code, found.severity, found.culprits) == ("DDP317", "warning", (1, 2))
    assert words in found.summary
