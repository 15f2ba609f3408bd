"""More compute threads than cores."""

from __future__ import annotations

import pytest

from tests.rules.environment.jobs import joined, recorded, some
from tests.rules.recordings import asked, line


@pytest.mark.parametrize(("culprits", "threads"), [((0, 1, 2, 3), 8), ((2,), 32)])
def test_more_threads_than_cores(culprits, threads):
    recording = recorded(some(culprits, joined(threads=threads), joined(threads=1)), cores=8)
    (found,) = asked("DDP704", recording)
    assert (found.severity, found.culprits) == ("warning", culprits)
    assert "8 cores" in found.summary and "2 here" in found.remedy


def test_the_line_that_sets_the_threads():
    (found,) = asked("DDP704", recorded(lambda r: joined(threads=1)(r).threads(64, line(5)), cores=8))
    assert found.where == tuple((number, line(5)) for number in range(4))


@pytest.mark.parametrize(
    ("make", "cores"),
    [
        (joined(threads=2), 8),
        (joined(threads=1), 0.5),
        (joined(threads=8), 0),
        (joined(threads=8), None),
        (joined(threads=7), 8),
        (lambda r: joined(threads=64)(r).threads(2), 8),
    ],
    ids=["fits", "a quota", "no cores known", "nothing known", "not far above", "set right after all"],
)
def test_threads_that_are_no_trouble(make, cores):
    assert asked("DDP704", recorded(make, **({} if cores is None else {"cores": cores}))) == []
