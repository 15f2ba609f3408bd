from __future__ import annotations

from ddpnb.render.views.new_group import sentences


def test_models_on_all_ranks_use_it():
    assert sentences({0: {"models kept": 1}, 1: {"models kept": 1}}) == [
        "1 model wrapped in DistributedDataParallel uses it."
    ]


def test_a_replaced_rank_has_no_model():
    assert sentences({0: {"models kept": 2}, 1: {}, 2: {"models kept": 2}}) == [
        "Only ranks 0 and 2 have 2 models wrapped in DistributedDataParallel: wrap again on all ranks."
    ]


def test_what_must_be_made_again_is_told_once():
    facts = {"lost": ["new_group([0, 1])", "T (its g)"], "troubles": ["Net must be wrapped again: no"]}
    assert sentences({0: facts, 1: facts}) == [
        "Net must be wrapped again: no.",
        "Make again what used the old groups: new_group([0, 1]), T (its g).",
    ]
    assert sentences({0: {}, 1: {}}) == []
