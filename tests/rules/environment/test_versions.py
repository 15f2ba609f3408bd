"""Ranks that run different versions."""

from __future__ import annotations

import pytest

from ddpnb.recording.phrases import besides
from tests.rules.environment.jobs import joined, recorded, some
from tests.rules.recordings import Rank, asked, record


@pytest.mark.parametrize("culprits", [(0,), (3,)], ids=str)
@pytest.mark.parametrize(("name", "odd", "usual"), [("torch", "2.12.0", "2.13.0"), ("nccl", "2.27.3", "2.28.9")])
def test_versions_that_differ(culprits, name, odd, usual):
    (found,) = asked("DDP107", recorded(some(culprits, joined(**{name: odd}), joined(**{name: usual}))))
    assert (found.severity, found.culprits, found.waiting) == ("error", culprits, besides(range(4), culprits))
    assert odd in found.summary and usual in found.summary


def test_a_version_that_some_ranks_do_not_tell():
    assert asked("DDP107", recorded(some((1,), joined(nccl=""), joined(torch="2.13.0", nccl="2.28.9")))) == []


@pytest.mark.parametrize(
    ("code", "fact", "values", "sides"),
    [
        ("DDP106", "asked", ("gloo", "nccl", "mpi"), "'gloo' on rank 0, 'nccl' on rank 1, 'mpi' on rank 2."),
        ("DDP107", "torch", ("2.1", "2.2", "2.3"), "2.1 on rank 0, 2.2 on rank 1, 2.3 on rank 2."),
    ],
)
def test_three_settings_are_told_by_side(code, fact, values, sides):
    ranks = [Rank(number, 3).joined(**{fact: value}) for number, value in enumerate(values)]
    (found,) = asked(code, record(*ranks))
    assert found.summary.endswith(sides) and found.sides == ((0,), (1,), (2,))
