"""Shards that match, and shards that do not, from samplers and data sets."""

from __future__ import annotations

import pytest

from tests.rules.data.trainers import LOOP, MADE, content, found, subset


@pytest.mark.parametrize(
    "sampler",
    [
        lambda t: {"told": 1},
        lambda t: {"own": True, "rank": 0},
        lambda t: {"rank": None},
        lambda t: {"seed": "<Tensor>"},
        lambda t: {"num_replicas": 1, "rank": 0, "seed": t.rank},  # everybody draws from all of it
        lambda t: {"shuffle": False, "seed": t.rank},
        lambda t: {"drop_last": t.rank == 0},  # the number of samples is the same
        lambda t: {"dataset": content(range(1000 * t.rank, 1000 * t.rank + 400))},
    ],
    ids=["right", "own", "no rank", "odd seed", "one replica", "not shuffled", "drop_last", "data of its own"],
)
def test_samplers_of_which_nothing_is_certain(sampler):
    for code in ("DDP501", "DDP503"):
        assert found(code, lambda t: t.distributed(**sampler(t))) == []


def test_ranks_in_smaller_groups_may_share_a_shard():
    """Tensor parallel: ranks 0 and 1 are one replica, 2 and 3 the other."""

    def parallel(trainer):
        trainer.made.makes_group([0, 2] if trainer.rank in (0, 2) else [1, 3])
        trainer.distributed(num_replicas=2, rank=trainer.rank // 2)

    assert found("DDP503", parallel) == []


@pytest.mark.parametrize("sampler", [{"rank": 0}, {"rank": 0, "num_replicas": 1}], ids=str)
def test_every_sampler_takes_the_same(sampler):
    (one,) = found("DDP501", lambda t: t.distributed(**sampler))
    assert (one.severity, one.culprits) == ("error", (0, 1, 2, 3))
    assert one.remedy.startswith("Omit num_replicas= and rank=")  # there is a sampler already


@pytest.mark.parametrize(
    ("sampler", "word", "culprits"),
    [
        (lambda t: {"seed": 1 if t.rank == 2 else 0}, "sampler of rank 2 has another seed or epoch", (2,)),
        (lambda t: {"seed": t.rank}, "The samplers of ranks 0-3 have different seeds or epochs", ()),
        (lambda t: {"epoch": 5 if t.rank == 1 else 0}, "epoch", (1,)),
        (lambda t: {"shuffle": t.rank != 3}, "another shuffle= than the others, False instead of True", (3,)),
        (lambda t: {"num_replicas": 8 if t.rank == 1 else 4}, "another num_replicas= than the others, 8 instead of 4", (1,)),
        (lambda t: {"length": 401 if t.rank == 1 else 400}, "another number of samples in the data set", (1,)),
        (lambda t: {"num_samples": 99 if t.rank == 1 else 100}, "another number of samples for each rank", (1,)),
        (lambda t: {"rank": 0 if t.rank == 1 else t.rank}, "the same shards", (1,)),
        (lambda t: {"num_replicas": 2, "rank": t.rank % 2}, "the same shards", (2, 3)),
        (lambda t: {"dataset": content(range(400) if t.rank else range(399, -1, -1))}, "a different order", (0,)),
        (lambda t: {"dataset": content(range(400) if t.rank != 2 else range(30, 430))}, "partly different", (2,)),
        (lambda t: {"dataset": subset([n for n in range(500) if n % 5 != t.rank])}, "partly different", ()),
    ],
    ids=["one seed", "seed of rank", "epoch", "shuffle", "replicas", "length", "samples", "rank twice", "of the node",
         "another order", "a stale copy", "split without a seed"],
)  # fmt: skip
def test_samplers_that_do_not_fit(sampler, word, culprits):
    (one,) = found("DDP503", lambda t: t.distributed(**sampler(t)))
    assert (one.severity, one.culprits, word in one.summary) == ("error", culprits, True)
    assert one.where[0] == ((culprits or (0,))[0], LOOP) and len(one.where) == 4
    assert one.sides == (() if culprits else ((0,), (1,), (2,), (3,)))


def test_of_a_thousand_ranks_one_has_another_seed():
    (one,) = found("DDP503", lambda t: t.distributed(seed=int(t.rank == 700)), world=1000)
    assert one.culprits == (700,) and len(one.evidence) <= 8


@pytest.mark.parametrize(
    ("odd", "place"),
    [({"seed": 1}, MADE), ({"shuffle": False}, MADE), ({"num_replicas": 8}, MADE), ({"epoch": 5}, LOOP)],
    ids=str,
)
def test_a_setting_points_to_where_the_sampler_was_made(odd, place):
    def trains(trainer):
        given = {"rank": trainer.rank, "num_replicas": 4, "seed": 0, "shuffle": True}
        given |= odd if trainer.rank == 1 else {}
        trainer.made.phase("sampler made", "done", MADE, number=3, **given)
        trainer.distributed(made=3, **given)

    (one,) = found("DDP503", trains)
    assert (one.culprits, set(one.where)) == ((1,), {(rank, place) for rank in range(4)})


def test_a_setting_that_was_changed_after_the_sampler_was_made_does_not():
    def trains(trainer):
        trainer.made.phase("sampler made", "done", MADE, number=3, seed=0)
        trainer.distributed(made=3, seed=int(trainer.rank == 1))

    (one,) = found("DDP503", trains)
    assert one.where[0] == (1, LOOP) and (0, MADE) in one.where


def test_a_later_epoch_differs():
    def trains(trainer):
        trainer.distributed(told=1).loops(sampler={"epoch": 1 if trainer.rank else 0, "told": 2})

    assert [one.culprits for one in found("DDP503", trains)] == [(0,)]


def test_a_rank_that_has_begun_the_next_epoch_in_a_hang():
    def trains(trainer):
        trainer.loader(trainer.dataset(content(range(400))), distributed=0)
        trainer.loops(state="open", sampler={"told": 1})
        if trainer.rank == 2:
            trainer.loops(state="open", steps=0, sampler={"epoch": 1, "told": 2})

    assert found("DDP503", trains) == []
