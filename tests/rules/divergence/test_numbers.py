"""Ranks that use other parameters, or give their gradients another weight; and what must not be taken for it."""

from __future__ import annotations

import math

import pytest

from ddpnb.recording.phrases import besides
from ddpnb.recording.recording import Recording
from ddpnb.rules.divergence import numbers
from tests.rules.divergence.steps import STEP, WRAPPED, backward, found, recorded, some, step
from tests.rules.recordings import Rank, asked, group, line, record

WEIGHT, BIAS = "fc.weight", "fc.bias"
SCALED = {"graph": "scaled < MseLoss mean"}


def weights(make, **more):
    """What is found of the weights of gradients, apart from what else DDP409 says."""
    taken = make if isinstance(make, Recording) else recorded(make, **more)
    return asked(numbers.weights, taken)


@pytest.mark.parametrize("culprits", [(0,), (3,)], ids=str)
@pytest.mark.parametrize(
    ("odd", "usual", "tensors", "told"),
    [
        (["a.weight"], ["b.weight"], {"a.weight", "b.weight"}, "does not use a.weight"),
        ([], [BIAS], {BIAS}, "uses all of these parameters"),
    ],
)
def test_other_parameters_are_used(culprits, odd, usual, tensors, told):
    (one,) = found("DDP402", some(culprits, backward(unused=odd), backward(unused=usual)))
    assert (one.severity, one.culprits, one.waiting) == ("error", culprits, besides(range(4), culprits))
    assert set(one.tensors) == tensors and f"Rank {culprits[0]} {told}." in one.evidence


def test_of_two_ranks_neither_is_named():
    (one,) = found("DDP402", some((1,), backward(unused=[BIAS]), backward(unused=[])), world=2)
    assert one.sides == ((0,), (1,)) and "ranks 0 and 1 use different parameters" in one.summary


@pytest.mark.parametrize(
    "make",
    [
        backward(unused=[BIAS]),
        lambda r: step(step(r, backward={"unused": [BIAS]}), backward={"unused": []}),
        some((1,), step, backward(unused=[BIAS])),
    ],
    ids=["the same", "together", "one has not looked"],
)
def test_unused_parameters_that_are_alike(make):
    assert found("DDP402", make) == []


@pytest.mark.parametrize("culprits", [(0,), (1,)], ids=str)
@pytest.mark.parametrize(
    ("odd", "usual"),
    [
        ({**SCALED, "factors": (0.25,)}, {}),
        ({**SCALED, "factors": (4.0,)}, {**SCALED, "factors": (1.0,)}),
        ({"graph": "MseLoss sum"}, {"graph": "MseLoss mean"}),
        ({"graph": "Sum"}, {"graph": "Mean"}),
    ],
    ids=["scaled on one", "another factor", "another reduction", "sum"],
)
def test_a_loss_that_is_scaled_otherwise(culprits, odd, usual):
    (one,) = weights(some(culprits, backward(3, **odd), backward(3, **usual)))
    assert (one.severity, one.culprits, one.waiting) == ("error", culprits, besides(range(4), culprits))


def test_of_two_ranks_that_scale_differently_neither_is_named():
    (one,) = weights(some((0,), backward(2, **SCALED, factors=(4.0,)), backward(2)), world=2)
    assert one.sides == ((0,), (1,)) and one.summary.startswith("Ranks 0 and 1 scale")


def accumulates(rank, parts):
    """Each of three optimizer steps over so many micro-batches."""
    for _ in range(3):
        for _ in range(parts):
            rank.forward(STEP).backward(STEP, factors=(1 / parts,))
        rank.gradients(STEP).updated(STEP)


def varying(factor):
    def make(rank):
        for turn in range(4):
            step(rank, backward={**SCALED, "factors": (factor(rank.rank, turn),)})

    return make


@pytest.mark.parametrize(
    "make",
    [
        varying(lambda rank, turn: 1 / (10 + turn + rank)),  # the number of tokens of a batch
        varying(lambda rank, turn: float(turn)),
        some((1,), backward(factors=(4.0,))),
        some((1,), backward(3, graph="CrossEntropy"), backward(3, graph="MseLoss mean")),
        some((1,), lambda r: accumulates(r, 3), lambda r: accumulates(r, 1)),
        lambda r: step(r).scales(65536.0).scales(32768.0).scales(math.nan),
    ],
    ids=["of each batch", "alike on all ranks", "one step", "another loss", "micro-batches", "a scale that changes"],
)
def test_factors_that_are_no_error(make):
    assert weights(make) == []


def test_other_numbers_of_micro_batches_that_are_not_scaled_by_them():
    assert len(weights(some((1,), lambda r: accumulates(r, 3), backward(3, factors=(0.5,))))) == 1


@pytest.mark.parametrize("norms", [(3.0, 4.0, 5.0, 6.0), (0.5, 0.5, 9.0, 0.5)], ids=str)
def test_gradients_that_are_clipped_by_norms_of_ones_own(norms):
    (one,) = weights(lambda r: step(r).clips(norms[r.rank], line(12), max_norm=1.0))
    assert (one.severity, one.culprits, one.waiting) == ("error", (0, 1, 2, 3), ())
    assert dict(one.where) == dict.fromkeys(range(4), line(12)) and f"Rank 2: norm {norms[2]:g}." in one.evidence


@pytest.mark.parametrize(
    ("norms", "most"),
    [((3.0,) * 4, 1.0), ((0.1, 0.2, 0.3, 0.4), 1.0), ((math.nan,) * 4, 1.0), ((3.0, 4.0, 5.0, 6.0), math.inf)],
    ids=["the same norm", "nothing is clipped", "not a number on all", "only measured"],
)
def test_norms_that_harm_nothing(norms, most):
    assert weights(lambda r: step(r).clips(norms[r.rank], max_norm=most)) == []


def by_hand(together):
    """Training without a wrapper: averaged gradients, or a model of each rank alone."""

    def make(rank):
        for turn in range(4):
            own = {WEIGHT: 1000 * turn + rank.rank, BIAS: 1000 * turn + 500 + rank.rank}
            odd = None if together else own
            rank.backward(STEP, factors=(1.0,) if together else (1.0 + rank.rank,)).clips(2.0 + rank.rank, STEP)
            rank.gradients(STEP, odd=odd).updated(STEP, odd=odd)

    return weights(make, wraps=False)


def test_only_replicas_are_compared():
    assert (len(by_hand(together=True)), by_hand(together=False)) == (1, [])


def test_models_on_different_groups():
    def stages(rank):
        stage = rank.rank // 2
        rank.wraps(at=WRAPPED, group=group(2 * stage, 2 * stage + 1))
        return step(rank, backward={"factors": (1.0 + stage,)}, steps=3).clips(3.0 + stage).finishes()

    assert weights(record(*(stages(Rank(number)) for number in range(4)))) == []


def test_what_follows_from_scalers_that_begin_apart():
    """What they began with decides; that losses and norms differ then follows from it."""

    def begins(rank):
        scale = 2.0 ** (14 - 4 * (rank.rank == 1))
        for _ in range(3):
            step(rank, backward={**SCALED, "factors": (scale,)}).clips(scale).scales(scale, line(3))

    assert weights(begins) == []
