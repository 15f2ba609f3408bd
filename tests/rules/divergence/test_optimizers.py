"""DDP410: settings of optimizers that differ, and what the ranks' own histories tell of it."""

from __future__ import annotations

import pytest

from ddpnb.rules.divergence.replicas import replicas
from ddpnb.rules.rule import findings_of
from tests.rules.recordings import Rank, line, record

MADE, SCHEDULED, STEP = line(4), line(8), line(9)


def trains(rank, lr, times=1, *, edited=(), scheduled=0):
    """Steps with this rate. ``edited``: what torch did not set; ``scheduled``: steps of schedulers before the first one."""
    for number in range(times):
        rank.forward(STEP).backward(STEP)
        rank.gradients(
            STEP, lr=lr, made=0.0, edited=list(edited), scheduled=float(scheduled + number * bool(scheduled))
        )
        rank.updated(STEP)
    return rank


def made(number, lr=0.1, world=2):
    rank = Rank(number, world).wraps(at=line(3))
    return rank.event("optimizer made", MADE, number=0, **{"class": "SGD", "settings": {"lr": lr}})


def the_finding(*ranks):
    (found,) = findings_of(record(*ranks), replicas)
    assert found.code == "DDP410" and "lr" in found.summary
    return found


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize("before", [0, 2])
def test_the_rank_whose_setting_torch_did_not_set(culprit, before):
    ranks = [trains(made(number), 0.1, before) for number in (0, 1)]
    trains(ranks[culprit], 0.5, edited=["lr"])
    trains(ranks[1 - culprit], 0.1)
    found = the_finding(*ranks)
    assert (found.culprits, found.waiting, found.sides, found.certainty) == ((culprit,), (1 - culprit,), (), "proven")
    assert f"Rank {culprit}: neither the constructor of the optimizer nor a scheduler set lr to 0.5." in found.evidence


def test_a_rank_that_left_out_what_both_did_before_by_hand():
    """Both set the rate themselves; then only one of them changes it."""
    ranks = [trains(made(number), 0.2, edited=["lr"]) for number in (0, 1)]
    trains(ranks[0], 0.2, edited=["lr"])
    trains(ranks[1], 0.5, edited=["lr"])
    assert the_finding(*ranks).culprits == (1,)


def test_optimizers_that_were_made_unlike():
    found = the_finding(*(trains(made(number, lr), lr) for number, lr in ((0, 0.1), (1, 0.5))))
    assert (found.culprits, found.sides) == ((), ((0,), (1,)))
    assert dict(found.where) == {0: MADE, 1: MADE}


def test_of_more_ranks_the_one_that_made_another_optimizer():
    found = the_finding(*(trains(made(number, lr, 3), lr) for number, lr in ((0, 0.5), (1, 0.1), (2, 0.1))))
    assert (found.culprits, found.waiting, found.where[0]) == ((0,), (1, 2), (0, MADE))


@pytest.mark.parametrize("culprit", [0, 1])
def test_the_rank_that_left_out_a_step_of_its_scheduler(culprit):
    ranks = [trains(made(number), 0.1, 4, scheduled=1) for number in (0, 1)]
    trains(ranks[culprit], 0.1, scheduled=4)
    trains(ranks[1 - culprit], 0.05, scheduled=5)
    found = the_finding(*ranks)
    assert (found.culprits, found.certainty) == ((culprit,), "proven")
    assert f"Rank {culprit}: its schedulers were stepped 4 times before." in found.evidence


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_step_of_a_scheduler_that_only_one_rank_ever_made_may_be_missing_on_the_other(culprit):
    ranks = [trains(made(number), 0.1, 3) for number in (0, 1)]
    ranks[culprit].event("scheduler stepped", SCHEDULED, optimizer=0)
    trains(ranks[culprit], 0.05, scheduled=1)
    trains(ranks[1 - culprit], 0.1)
    found = the_finding(*ranks)
    assert (found.culprits, found.certainty) == ((culprit,), "likely")
    assert dict(found.where) == {culprit: SCHEDULED, 1 - culprit: STEP}


def test_schedulers_that_were_stepped_alike_and_set_unlike_rates():
    """Of a plateau that only one rank sees neither rank is at fault: both stepped their schedulers."""
    found = plateaus(0.1, 0.01)
    assert (found.culprits, found.sides) == ((), ((0,), (1,)))
    assert dict(found.where) == {0: SCHEDULED, 1: SCHEDULED}


def test_of_more_ranks_that_schedulers_set_unlike_rates_on_the_odd_one_is_likely():
    found = plateaus(0.1, 0.01, 0.1)
    assert (found.culprits, found.certainty) == ((1,), "likely")


def plateaus(*rates):
    ranks = [trains(made(number), 0.1, 2, scheduled=1) for number in range(len(rates))]
    for rank, lr in zip(ranks, rates, strict=True):
        rank.event("scheduler stepped", SCHEDULED, optimizer=0)
        trains(rank, lr, scheduled=3)
    return the_finding(*ranks)
