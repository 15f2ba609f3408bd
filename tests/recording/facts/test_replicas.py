"""What the samples around a difference tell of each rank: who changed its own parameters."""

from __future__ import annotations

import pytest

from ddpnb.recording.facts.digests import first_difference
from ddpnb.recording.facts.replicas import replicas_of
from tests.recording.facts.test_digests import WEIGHT, four
from tests.rules.recordings import Rank, group, record


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


def test_replicas_of_one_number_are_apart_by_their_group():
    ranks = [Rank(n).wraps(group=group(n - n % 2, n - n % 2 + 1)).trains(1) for n in range(4)]
    ranks[3].drifts({WEIGHT: 9})
    first, second = replicas_of(record(*(rank.trains(1) for rank in ranks)))
    assert (first.models.keys(), first.ranks.keys(), first.drift) == ({0, 1}, {0, 1}, None)
    assert second.drift is not None and second.drift.sides == ((2,), (3,))
    assert all(samples.keys() == {2, 3} for samples in second.turns("forward").values())


def test_ranks_that_have_not_come_to_a_moment_may_hold_what_the_fewest_do():
    ranks = [Rank(n).wraps().trains(1) for n in range(4)]
    ranks[0].drifts({WEIGHT: 9})
    (own,) = replicas_of(record(*(rank.forward() for rank in ranks[:3]), ranks[3]))
    assert own.drift is not None and (own.drift.sides, own.drift.split.culprits) == (((1, 2), (0,)), ())
    (own,) = replicas_of(record(*(rank.forward() for rank in ranks[:3]), ranks[3].forward()))
    assert own.drift is not None and own.drift.split.culprits == (0,)


@pytest.mark.parametrize("losses", [1, 2])
def test_a_rank_that_has_made_fewer_backward_passes_has_no_other_losses(losses):
    """Equal gradients after equal losses do not make models replicas."""
    ranks = [Rank(n, 2).adopts() for n in range(2)]
    for _ in range(2):
        for rank in ranks:
            rank.backward(loss=0.5).gradients().updated(odd={WEIGHT: 70 + rank.rank})
    ranks[1].backward(loss=0.5 * losses)
    ranks[0].backward(loss=0.5).backward(loss=0.5)
    (own,) = replicas_of(record(*ranks))
    assert (own.kept_equal is None) == (losses == 1)
