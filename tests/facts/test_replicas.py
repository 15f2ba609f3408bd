"""What the samples around a difference tell of each rank: who changed its own parameters."""

from __future__ import annotations

import pytest

from ddpnb.facts.digests import first_difference
from ddpnb.facts.replicas import replicas_of
from tests.facts.test_digests import WEIGHT, four
from tests.rules.recordings import Rank, record


def changed_since(recording, found):
    (own,) = replicas_of(recording)
    return own.changed_since(found)


@pytest.mark.parametrize("culprit", [0, 1, 3])
def test_the_rank_that_changed_its_own_parameters(culprit):
    recording = four(lambda rank: rank.drifts({WEIGHT: 9}), odd=(culprit,))
    found = first_difference(recording, 0)
    assert changed_since(recording, found).changed == (culprit,)


def test_all_but_one_changed_theirs():
    """The majority is a hint, no more: here it is the majority that did something."""
    recording = four(lambda rank: rank.drifts({WEIGHT: 9}), odd=(0, 1, 3))
    found = first_difference(recording, 0)
    assert found.split.culprits == (2,)
    assert changed_since(recording, found).changed == (0, 1, 3)


def test_a_change_between_two_forwards_without_a_step():
    ranks = [Rank(n, 2).wraps().trains(1).forward() for n in range(2)]
    ranks[0].drifts({WEIGHT: 9})
    recording = record(*(rank.forward() for rank in ranks))
    found = first_difference(recording, 0)
    assert found.split.tied
    assert changed_since(recording, found).changed == (0,)


def test_nobody_changed_anything_where_the_step_made_the_difference():
    ranks = [Rank(n, 2).wraps().trains(1).forward().backward().gradients() for n in range(2)]
    ranks[1].drifts({WEIGHT: 9})
    recording = record(*(rank.updated().forward() for rank in ranks))
    found = first_difference(recording, 0, kinds=("forward",))
    assert found.turn == 3
    assert changed_since(recording, found).changed == ()


def test_a_rank_of_which_the_earlier_look_is_missing_may_have_changed_its_parameters_too():
    ranks = [Rank(n, 2).wraps().trains(1) for n in range(2)]
    ranks[1].sample("updated", step=2, turn=3)
    for rank in ranks:
        rank.drifts({WEIGHT: 90 + rank.rank}).forward(step=2)
    recording = record(*ranks)
    past = changed_since(recording, first_difference(recording, 0))
    assert (past.changed, past.known) == ((1,), (1,))


def test_a_forward_without_the_step_before_it_tells_nothing():
    ranks = [Rank(n, 2).wraps().trains(1) for n in range(2)]
    ranks[1].drifts({WEIGHT: 9})
    recording = record(*(rank.forward(step=5) for rank in ranks))
    found = first_difference(recording, 0)
    assert found.turn == 2
    assert changed_since(recording, found).changed == ()
