"""Norms of the gradients of every rank, step by step."""

from __future__ import annotations

import math

from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.replicas import Digest, Sample
from ddpnb.render.views.gradient_norms import gradient_norms


def gradients(step, *norms, model=0, kind="gradients"):
    return Sample(model, kind, step + 1, step, digests={f"p{n}": Digest(n, norm) for n, norm in enumerate(norms)})


def norms(*samples_of_ranks):
    records = {rank: RankRecord(rank, samples=tuple(ones)) for rank, ones in enumerate(samples_of_ranks)}
    return gradient_norms(Recording(len(records), records))


def test_the_norm_of_all_gradients_of_a_step():
    assert norms([gradients(0, 3.0, 4.0), gradients(1, 6.0, 8.0)]) == {0: ((0, 5.0), (1, 10.0))}


def test_ranks_are_told_apart():
    assert norms([gradients(0, 1.0)], [gradients(0, 2.0)]) == {0: ((0, 1.0),), 1: ((0, 2.0),)}


def test_where_nothing_was_sampled_there_is_nothing():
    assert norms() == {}
    assert norms([], []) == {}
    assert norms([gradients(0, 1.0, kind="forward")]) == {}


def test_norms_that_are_not_known_are_left_out():
    assert norms([gradients(0, 3.0, None, 4.0)]) == {0: ((0, 5.0),)}
    assert norms([gradients(0, None)], [gradients(0, 1.0)]) == {1: ((0, 1.0),)}
    assert norms([gradients(0), gradients(1, 2.0)]) == {0: ((1, 2.0),)}


def test_what_is_not_finite_is_kept():
    found = norms([gradients(0, math.nan), gradients(1, math.inf, 1.0)])[0]
    assert math.isnan(found[0][1]) and found[1][1] == math.inf


def test_large_norms_do_not_overflow():
    assert norms([gradients(0, 1e200, 1e200)])[0][0][1] > 1e200


def test_of_several_models_the_one_with_most_samples_is_told_of():
    many = [gradients(step, 1.0, model=7) for step in range(3)]
    assert norms([*many, gradients(0, 5.0)]) == {0: ((0, 1.0), (1, 1.0), (2, 1.0))}
    assert norms([gradients(0, 5.0, model=1), gradients(0, 1.0)]) == {0: ((0, 1.0),)}
