"""Time-outs of groups that are probably not meant."""

from __future__ import annotations

import pytest

from tests.rules.environment.jobs import joined, recorded, some
from tests.rules.recordings import Rank, asked, line, record


def test_a_group_that_does_not_inherit_the_time_out():
    taken = recorded(lambda r: joined(timeout_s=60.0)(r).makes_group([0, 1], line(8), timeout_s=None))
    (found,) = asked("DDP317", taken)
    assert (found.severity, found.culprits) == ("note", (0, 1, 2, 3))
    assert found.where == tuple((number, line(8)) for number in range(4))
    assert "60 s" in found.summary and "30 minutes" in found.summary


def test_it_is_a_warning_where_ranks_are_stuck():
    one, other = (Rank(n, 2).joined(timeout_s=60.0).makes_group([0, 1], line(8), timeout_s=None) for n in (0, 1))
    (found,) = asked("DDP317", record(one.waits("all_reduce"), other.finishes()))
    assert found.severity == "warning"


@pytest.mark.parametrize(
    ("world", "made"),
    [(60.0, 60.0), (None, None), (1800.0, None), (3600.0, None), ("60", None)],
    ids=["its own", "the default", "as long as the default", "longer", "nonsense"],
)
def test_time_outs_that_are_as_they_should_be(world, made):
    assert asked("DDP317", recorded(lambda r: joined(timeout_s=world)(r).makes_group([0, 1], timeout_s=made))) == []


@pytest.mark.parametrize(("seconds", "words"), [(4 * 3600.0, "4 hours"), (14 * 24 * 3600.0, "336 hours")])
def test_a_time_out_of_many_hours(seconds, words):
    (found,) = asked("DDP317", recorded(some((1, 2), joined(timeout_s=seconds), joined(timeout_s=600.0))))
    assert (found.severity, found.culprits) == ("warning", (1, 2)) and words in found.summary
