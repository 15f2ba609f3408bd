"""The first moment at which replicas differ, on which side each rank is, and who changed what."""

from __future__ import annotations

import math

import pytest

from ddpnb.recording.facts.digests import (
    against_past,
    by_turn,
    differing,
    extent,
    first_difference,
    models_of,
    sides_of,
)
from ddpnb.recording.replicas import Digest, Sample
from tests.rules.recordings import Rank, line, record
from tests.rules.training import NORMED, tensor

WEIGHT, BIAS = "fc.weight", "fc.bias"


def held(**values):
    """A sample that holds these digests."""
    return Sample(0, "forward", 1, digests={name: Digest(value, float(value)) for name, value in values.items()})


def four(change=None, odd=(1,), steps=2, after=1):
    """Four ranks that train; ``change`` is done to the odd ones before their last step."""
    ranks = []
    for number in range(4):
        rank = Rank(number).wraps(at=line(3)).trains(steps, line(9))
        if change is not None and number in odd:
            rank = change(rank)
        ranks.append(rank.trains(after, line(9)))
    return record(*ranks)


# -- what differs


def test_nothing_differs_where_all_hold_the_same():
    assert differing({0: held(a=1, b=2), 1: held(a=1, b=2)}) == ()
    assert first_difference(four(), 0) is None


def test_one_sample_differs_from_nothing():
    assert differing({}) == () == differing({3: held(a=1)})


def test_the_parts_that_differ_are_given_in_the_models_order():
    assert differing({0: held(c=1, a=1, b=1), 1: held(a=2, b=1, c=2)}) == ("c", "a")


def test_a_part_that_another_rank_has_not_digested_is_not_compared():
    assert differing({0: held(a=1, b=2), 1: held(b=2)}) == ()
    assert differing({0: held(b=2), 1: held(a=1, b=2)}) == ()


def test_a_part_that_the_first_rank_has_not_digested_is_compared_all_the_same():
    assert differing({0: held(), 1: held(a=1), 2: held(a=2)}) == ("a",)


def test_only_the_chosen_parts_are_compared():
    samples = {0: held(a=1, b=1), 1: held(a=2, b=2)}
    assert differing(samples, ["b", "unknown"]) == ("b",)
    assert differing(samples, []) == ()


@pytest.mark.parametrize(
    ("values", "sides"),
    [
        ({0: 1, 1: 1, 2: 2, 3: 1}, ((0, 1, 3), (2,))),
        ({0: 9, 1: 1, 2: 1, 3: 1}, ((1, 2, 3), (0,))),
        ({0: 1, 1: 2}, ((0,), (1,))),
        ({0: 2, 1: 1, 2: 2, 3: 1}, ((0, 2), (1, 3))),
        ({0: 1, 1: 2, 2: 3}, ((0,), (1,), (2,))),
    ],
    ids=["one of four", "rank 0 of four", "two", "half and half", "all"],
)
def test_the_largest_side_comes_first_then_the_one_of_the_lowest_rank(values, sides):
    assert sides_of({rank: held(a=value) for rank, value in values.items()}, ["a"]) == sides


def test_a_rank_that_lacks_the_part_is_on_a_side_of_its_own():
    assert sides_of({0: held(a=1), 1: held(), 2: held(a=1)}, ["a"]) == ((0, 2), (1,))


# -- when it began


def test_a_change_between_a_step_and_the_next_forward():
    found = first_difference(four(lambda rank: rank.drifts({WEIGHT: 9})), 0)
    assert (found.kind, found.turn, found.units, found.split.culprits) == ("forward", 3, (WEIGHT,), (1,))
    assert set(found.samples) == {0, 1, 2, 3}


def test_the_odd_rank_may_be_rank_0():
    found = first_difference(four(lambda rank: rank.drifts({BIAS: 9}), odd=(0,)), 0)
    assert (found.sides, found.split.culprits) == (((1, 2, 3), (0,)), (0,))


@pytest.mark.parametrize(
    ("change", "kind", "turn"),
    [
        (lambda r: r.forward(odd={WEIGHT: 9}).backward().gradients(odd={WEIGHT: 9}).updated(odd={WEIGHT: 9}), "forward", 3),
        (lambda r: r.forward().backward().gradients(odd={WEIGHT: 9}).updated(odd={WEIGHT: 9}), "gradients", 3),
        (lambda r: r.forward().backward().gradients().updated(odd={WEIGHT: 9}).forward(odd={WEIGHT: 9}), "updated", 4),
    ],
    ids=["forward", "gradients", "updated"],
)  # fmt: skip
def test_the_first_of_several_differences_is_the_one_that_counts(change, kind, turn):
    usual = [Rank(number).wraps().trains(4) for number in (0, 2, 3)]
    odd = change(Rank(1).wraps().trains(2)).trains(2)
    found = first_difference(record(usual[0], odd, *usual[1:]), 0)
    assert (found.kind, found.turn, found.split.culprits) == (kind, turn, (1,))


def test_parameters_that_are_unlike_when_they_are_wrapped():
    ranks = [Rank(number).drifts({WEIGHT: 7} if number == 2 else {}).wraps().trains(2) for number in range(3)]
    found = first_difference(record(*ranks), 0)
    assert (found.kind, found.turn, found.split.culprits) == ("updated", 1, (2,))


def test_kinds_and_names_can_be_chosen():
    recording = four(lambda rank: rank.drifts({WEIGHT: 9}))
    assert first_difference(recording, 0, kinds=("gradients",)) is None
    assert first_difference(recording, 0, names=(BIAS,)) is None
    assert first_difference(recording, 0, kinds=("updated",)).turn == 4
    assert first_difference(recording, 7) is None


def test_parts_of_one_tensor_are_one_tensor():
    large = tensor("wide", (40_000,))
    ranks = [Rank(n, 2).drifts({"wide": 5} if n else {}).wraps(large) for n in range(2)]
    found = first_difference(record(*ranks), 0)
    assert found.units == ("wide[0:16384]", "wide[16384:32768]", "wide[32768:40000]")
    assert found.tensors == ("wide",)


def test_samples_are_paired_by_their_turn_not_by_their_place():
    """A rank whose first turns are no longer known is compared with the others' later ones."""
    early, late = Rank(0, 2).wraps().trains(3), Rank(1, 2).wraps()
    for turn in (2, 3):
        late.forward(turn=turn, step=turn - 1)
    taken = record(early, late)
    found = by_turn(taken, 0, "forward")
    assert [sorted(ranks) for ranks in found.values()] == [[0], [0, 1], [0, 1]]
    assert first_difference(taken, 0) is None


def test_models_by_number_and_rank():
    recording = record(Rank(0, 2).wraps().wraps(*NORMED, module="Critic"), Rank(1, 2).wraps())
    found = models_of(recording)
    assert {number: sorted(ranks) for number, ranks in found.items()} == {0: [0, 1], 1: [0]}
    assert found[1][0].module == "Critic"


# -- by how much


def test_the_norms_of_each_side():
    samples = {rank: held(a=3 if rank == 1 else 4) for rank in range(3)}
    assert extent(samples, "a") == "4 on ranks 0 and 2, 3 on rank 1"


def test_equal_or_unknown_norms_tell_nothing():
    unknown = Sample(0, "forward", 1, digests={"a": Digest(5)})
    assert extent({0: held(a=4), 1: held(a=4)}, "a") == ""
    assert extent({0: held(a=4), 1: unknown}, "a") == ""
    assert extent({0: held(a=4), 1: held(b=4)}, "a") == ""


def test_many_ranks_are_cut_short():
    text = extent({rank: held(a=rank % 2) for rank in range(40)}, "a")
    assert text.count("and 10 more") == 2
    assert len(text) < 120


def test_a_value_is_compared_with_all_that_the_rank_had_before():
    past = against_past({0: 1.0, 1: 2.0, 2: 3.0, 3: math.nan}, {0: [1.0, 2.0], 1: [1.0], 3: [math.nan]})
    assert (past.changed, past.known, past.unchanged) == ((1,), (0, 1, 3), (0, 3))
