"""Ranks that run different versions."""

from __future__ import annotations

import pytest

from ddpnb.rules.rules import environment
from tests.rules.environment.jobs import joined, others, recorded, some, the_finding
from tests.rules.recordings import Rank, diagnose, line, record


@pytest.mark.parametrize("culprits", [(0,), (3,)], ids=str)
@pytest.mark.parametrize(
    ("name", "odd", "usual"),
    [("torch", "2.12.0", "2.13.0"), ("cuda", "12.8", "13.0"), ("nccl", "2.27.3", "2.28.9"), ("python", "3.11.7", "3.12.1")],
)  # fmt: skip
def test_versions_that_differ(culprits, name, odd, usual):
    found = the_finding(recorded(some(culprits, joined(**{name: odd}), joined(**{name: usual}))))
    assert (found.code, found.severity, found.culprits, found.waiting) == (
        "DDP107", "error", culprits, others(culprits),
    )  # fmt: skip
    assert odd in found.summary and usual in found.summary


def test_a_version_that_some_ranks_do_not_tell():
    assert environment(recorded(some((1,), joined(), joined(torch="2.13.0", nccl="2.28.9")))) == []
    assert environment(recorded(some((1,), joined(nccl=""), joined(nccl="2.28.9")))) == []


@pytest.mark.parametrize(
    ("code", "fact", "values", "summary"),
    [
        (
            "DDP106",
            "asked",
            ("gloo", "nccl", "mpi"),
            "different backends: 'gloo' on rank 0, 'nccl' on rank 1, 'mpi' on rank 2.",
        ),
        (
            "DDP107",
            "torch",
            ("2.1", "2.2", "2.3"),
            "different versions of torch: 2.1 on rank 0, 2.2 on rank 1, 2.3 on rank 2.",
        ),
    ],
)
def test_three_settings_are_told_by_side(code, fact, values, summary):
    ranks = [Rank(number, 3).joined(line(2), **{fact: value}) for number, value in enumerate(values)]
    (found,) = [one for one in diagnose(record(*ranks)).findings if one.code == code]
    assert found.summary.endswith(summary) and found.sides == ((0,), (1,), (2,))
