"""Ranks that request different backends."""

from __future__ import annotations

import pytest

from ddpnb.recording.phrases import besides
from tests.rules.environment.jobs import INIT, joined, recorded, some
from tests.rules.recordings import asked, line

WORLD = [0, 1, 2, 3]


@pytest.mark.parametrize("culprits", [(0,), (1, 2)], ids=str)
@pytest.mark.parametrize(
    ("odd", "usual"),
    [
        ({"asked": "nccl"}, {}),
        ({"asked": ""}, {}),
        ({}, {"asked": ""}),
        ({"asked": None, "backend": "NCCL"}, {}),  # an older recording
        ({"asked": "nccl", "backend": "gloo"}, {}),  # what the script asks for counts
    ],
    ids=str,
)
def test_backends_that_differ(culprits, odd, usual):
    (found,) = asked("DDP106", recorded(some(culprits, joined(**odd), joined(**usual)), world=5))
    assert (found.severity, found.culprits, found.waiting) == ("error", culprits, besides(range(5), culprits))
    assert dict(found.where) == dict.fromkeys(range(5), INIT) and "''" not in found.summary


@pytest.mark.parametrize("culprits", [(0,), (2,)], ids=str)
def test_groups_with_other_backends(culprits):
    def make(rank):
        rank.makes_group(WORLD, line(6), backend="gloo")
        rank.makes_group(WORLD, line(7), backend="nccl" if rank.rank in culprits else "gloo")

    (found,) = asked("DDP106", recorded(make))
    assert (found.culprits, dict(found.where)) == (culprits, dict.fromkeys(range(4), line(7)))


def forgotten(rank):  # which group is the first is not known
    if rank.rank:
        rank.makes_group(WORLD, line(6), backend="gloo")
    rank.makes_group(WORLD, line(7), backend="nccl").forgets_events(0 if rank.rank else 1)


def different_groups(rank):
    backend, mine = ("gloo", [0, 1]) if rank.rank < 2 else ("nccl", [2, 3])
    rank.makes_group(mine, backend=backend, local=True).makes_group(WORLD, backend="nccl")


@pytest.mark.parametrize(
    "make", [joined(asked="nccl", backend="gloo"), some((1,), joined(asked="GLOO")), forgotten, different_groups]
)
def test_backends_that_are_alike(make):
    assert asked("DDP106", recorded(make)) == []
