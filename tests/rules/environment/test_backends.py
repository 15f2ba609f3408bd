"""Ranks that request different backends."""

from __future__ import annotations

import pytest

from ddpnb.rules.rules import environment
from tests.rules.environment.jobs import INIT, joined, others, recorded, some, the_finding
from tests.rules.recordings import line


@pytest.mark.parametrize("culprits", [(0,), (3,), (1, 2)], ids=str)
@pytest.mark.parametrize(("odd", "usual"), [("nccl", "gloo"), ("", "gloo"), ("gloo", "")])
def test_backends_that_differ(culprits, odd, usual):
    recording = recorded(some(culprits, joined(asked=odd), joined(asked=usual)), world=5)
    found = the_finding(recording)
    assert (found.code, found.severity, found.culprits, found.waiting) == (
        "DDP106", "error", culprits, others(culprits, 5),
    )  # fmt: skip
    assert dict(found.where) == dict.fromkeys(range(5), INIT)
    assert "''" not in found.summary


def test_what_the_script_asks_for_counts_not_what_the_launcher_chose():
    assert environment(recorded(joined(asked="nccl", backend="gloo"))) == []
    assert the_finding(recorded(some((1,), joined(asked="nccl", backend="gloo")))).culprits == (1,)


def test_a_recording_that_knows_only_the_backend():
    def make(rank):
        rank.joined(INIT, backend="NCCL" if rank.rank == 2 else "gloo")

    assert the_finding(recorded(make)).culprits == (2,)


def test_capitals_make_no_other_backend():
    assert environment(recorded(some((1,), joined(asked="GLOO")))) == []


@pytest.mark.parametrize("culprits", [(0,), (2,)], ids=str)
def test_groups_with_other_backends(culprits):
    def make(rank):
        rank.makes_group([0, 1, 2, 3], line(6), backend="gloo").makes_group(
            [0, 1, 2, 3], line(7), backend="nccl" if rank.rank in culprits else "gloo"
        )

    found = the_finding(recorded(make))
    assert (found.code, found.culprits, found.waiting) == ("DDP106", culprits, others(culprits))
    assert dict(found.where) == dict.fromkeys(range(4), line(7))


def test_groups_are_not_compared_by_their_number_where_some_are_forgotten():
    def make(rank):
        if rank.rank:
            rank.makes_group([0, 1, 2, 3], line(6), backend="gloo")
        rank.makes_group([0, 1, 2, 3], line(7), backend="nccl").forgets_events(0 if rank.rank else 1)

    assert environment(recorded(make)) == []


def test_different_groups_may_have_different_backends():
    def make(rank):
        mine = [0, 1] if rank.rank < 2 else [2, 3]
        rank.makes_group(mine, backend="gloo" if rank.rank < 2 else "nccl", local=True)
        rank.makes_group([0, 1, 2, 3], backend="nccl")

    assert environment(recorded(make)) == []
