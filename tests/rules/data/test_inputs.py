"""Replicas that see the same batches, or each other's."""

from __future__ import annotations

import pytest

from ddpnb.recording.phrases import besides
from tests.rules.divergence.steps import STEP, found, step
from tests.rules.recordings import line


def batches(side, turns=3, loader=True, sampler=None, **facts):
    """Every turn has other batches; ranks of one ``side(rank)`` see the same ones."""

    def make(rank):
        if loader:
            rank.loader(line(5), loader=0, **({} if sampler is None else {"distributed": sampler}))
        for turn in range(turns):
            step(rank, forward={"inputs_hash": float(1 + 100 * turn + side(rank.rank)), **facts})

    return found("DDP501", make)


@pytest.mark.parametrize(
    ("side", "culprits"),
    [(lambda r: 0, (0, 1, 2, 3)), (lambda r: r // 3, (0, 1, 2)), (lambda r: r and 7, (1, 2, 3))],
    ids=["all", "not rank 3", "not rank 0"],
)
def test_ranks_that_see_the_same_batches(side, culprits):
    (one,) = batches(side)
    assert (one.severity, one.culprits, one.waiting) == ("error", culprits, besides(range(4), culprits))
    assert dict(one.where)[culprits[0]] == STEP


@pytest.mark.parametrize("sampler", [None, 0])
def test_a_sampler_that_is_there_is_not_advised(sampler):
    (one,) = batches(lambda r: 0, sampler=sampler)
    assert ("sampler=DistributedSampler(dataset)" in one.remedy) == (sampler is None)


@pytest.mark.parametrize("more", [{"loader": False}, {"turns": 2}], ids=str)
def test_with_less_evidence_it_is_a_warning(more):
    assert [one.severity for one in batches(lambda r: 0, **more)] == ["warning"]


@pytest.mark.parametrize(
    ("side", "more"),
    [(lambda r: r, {}), (lambda r: 0, {"turns": 1}), (lambda r: 0, {"training": 0.0}), (lambda r: 0, {"inputs_hash": 0.0})],
    ids=["their own", "a coincidence", "evaluation", "not digested"],
)  # fmt: skip
def test_batches_that_are_no_error(side, more):
    assert batches(side, **more) == []


@pytest.mark.parametrize(
    "value",
    [lambda rank, turn: 5, lambda rank, turn: (5, 5, 6, 7)[rank], lambda rank, turn: 1 + turn % 2],
    ids=["constant", "constant on each", "two in turn"],
)
def test_dummies(value):
    def make(rank):
        for turn in range(8):
            step(rank.loader(), forward={"inputs_hash": float(value(rank.rank, turn))})

    assert found("DDP501", make) == []


@pytest.mark.parametrize(
    ("apart", "repeated", "shared"), [(3, False, True), (6, False, False), (4, False, False), (3, True, False)],
    ids=["overlap", "parts", "two may be alike by chance", "batches come again"],
)  # fmt: skip
def test_shards_that_overlap(apart, repeated, shared):
    """Each of two ranks sees six of twelve batches."""

    def make(rank):
        for turn in range(6):
            value = (apart * rank.rank + turn) % 12
            step(rank, forward={"inputs_hash": float(1 + (value % 2 if repeated else value))})

    overlapping = found("DDP503", make, world=2)
    assert [(one.culprits, "3 batches" in one.summary) for one in overlapping] == [((0, 1), True)] * shared
