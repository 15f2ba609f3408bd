"""More compute threads than cores."""

from __future__ import annotations

import pytest

from ddpnb.rules.rules import environment
from tests.rules.environment.jobs import joined, recorded, some, the_finding
from tests.rules.recordings import line


@pytest.mark.parametrize("threads", [{}, {"odd": 32}], ids=["each", "one alone"])
def test_more_threads_than_cores(threads):
    culprits = (2,) if threads else (0, 1, 2, 3)
    recording = recorded(some(culprits, joined(threads=threads.get("odd", 8)), joined(threads=1)), cores=8)
    found = the_finding(recording)
    assert (found.code, found.severity, found.culprits) == ("DDP704", "warning", culprits)
    assert "8 cores" in found.summary
    assert "2 here" in found.remedy


def test_the_line_that_sets_the_threads():
    found = the_finding(recorded(lambda r: joined(threads=1)(r).threads(64, line(5)), cores=8))
    assert found.where == tuple((number, line(5)) for number in range(4))


@pytest.mark.parametrize(
    ("threads", "cores"), [(2, 8), (1, 1), (1, 0.5), (8, 0), (8, None), (7, 8)],
    ids=["fits", "one each", "a quota", "no cores known", "nothing known", "not far above"],
)  # fmt: skip
def test_threads_that_are_no_trouble(threads, cores):
    host = {} if cores is None else {"cores": cores}
    assert environment(recorded(joined(threads=threads), **host)) == []


def test_threads_that_were_set_right_after_all():
    assert environment(recorded(lambda r: joined(threads=64)(r).threads(2), cores=8)) == []
