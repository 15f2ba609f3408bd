"""Data that are split between ranks without a DistributedSampler."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.replicas import Model, Sample
from tests.rules.data.trainers import EVALUATE, LOOP, MADE, RANDOM, Trainer, content, found, recorded, subset
from tests.rules.recordings import Rank, asked

ALL = (0, 1, 2, 3)


@pytest.mark.parametrize("loader", [{}, {"sampler": RANDOM, "rng": "state"}], ids=["in order", "one seed"])
def test_the_same_batches_on_all_ranks(loader):
    (one,) = found("DDP501", lambda t: t.plain(**loader))
    assert (one.severity, one.culprits, one.where) == ("error", ALL, tuple((rank, LOOP) for rank in ALL))
    assert "25 batches of 4" in " ".join(one.evidence)


def evaluates(trainer):
    trainer.distributed().evaluates(content(range(50)))


def looks_now_and_then(trainer):
    trainer.loader(trainer.dataset(content(range(50))), EVALUATE)
    trainer.loops(0, EVALUATE, batches=5, steps=100)


def shares_one_loader_out(trainer):
    trainer.plain()
    loader = trainer.loader(trainer.dataset(content(range(400))), distributed=1)
    trainer.loops(loader, sampler={"sampler": 1, "dataset": 1})


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.plain(kind="iterable"),
        lambda t: t.plain(own=True),
        lambda t: t.plain(sampler=RANDOM),
        lambda t: t.plain(sampler=RANDOM, rng=f"state {t.rank}"),
        lambda t: t.plain(sampler="torch.utils.data.sampler.WeightedRandomSampler"),
        lambda t: t.plain({"class": "user.Files", "rows": None}),
        lambda t: t.plain(content(range(100 * t.rank, 100 * t.rank + 100))),
        lambda t: t.plain(subset(range(t.rank, 400, 4))),
        lambda t: t.plain(length=25 if t.rank else 26),
        evaluates,
        looks_now_and_then,
        shares_one_loader_out,
    ],
)
def test_only_what_is_certain(make):
    for code in ("DDP501", "DDP503"):
        assert found(code, make) == []


def test_no_model_is_wrapped():
    assert found("DDP501", lambda t: t.plain(), wraps=False) == []


def with_each(taken, **changes):
    return replace(
        taken,
        ranks={r: replace(one, **{k: change(r) for k, change in changes.items()}) for r, one in taken.ranks.items()},
    )


def test_models_tell_the_groups():
    taken = recorded(lambda t: t.distributed(num_replicas=2, rank=t.rank // 2))
    pairs = with_each(taken, models=lambda r: (Model(0, "DDP", ranks=(0, 2) if r in (0, 2) else (1, 3)),))
    by_hand = with_each(taken, models=lambda r: (Model(0, "", ranks=ALL),))
    assert asked("DDP503", pairs) == asked("DDP503", by_hand) == []


@pytest.mark.parametrize("alike", [True, False])
def test_inputs_of_the_models_say_whether_each_rank_takes_its_part_of_a_batch(alike):
    hashes = {"samples": lambda r: (Sample(0, "forward", 1, facts={"inputs_hash": 7.0 if alike else 1.0 + r}),)}
    told = [one.evidence[-1] for one in asked("DDP501", with_each(recorded(lambda t: t.plain()), **hashes))]
    assert told == ["The models received the same inputs."] * alike


def test_a_loader_points_to_where_it_was_made():
    def trains(trainer):
        trainer.made.phase("loader made", "done", MADE, number=0)
        trainer.plain(made=0)

    assert found("DDP501", trains)[0].where == tuple((rank, MADE) for rank in ALL)


def test_places_that_are_not_known():
    def trains(trainer):
        history = trainer.plain().made._history
        history[:] = [replace(event, site=NO_SITE) for event in history]

    assert found("DDP501", trains)[0].where == ()


@pytest.mark.parametrize("own", [True, False])
def test_one_trains_on_what_another_evaluates_on(own):
    def splits(trainer):
        held = {n for n in range(500) if n % 5 == trainer.rank * own}
        trainer.loader(trainer.dataset(subset([n for n in range(500) if n not in held])), sampler=RANDOM)
        trainer.loops(0, rng=f"{trainer.rank}").evaluates(subset(sorted(held)), times=1, sampler=RANDOM)

    assert [one.sides for one in found("DDP503", splits)] == [((0,), (1,), (2,), (3,))] * own


def strided(trainer):
    """A part of a permutation of the rank's own."""
    first = 100 * trainer.rank
    return [(n * (trainer.rank * 2 + 3)) % 401 for n in range(first, first + 100)]


@pytest.mark.parametrize(
    ("dataset", "certainty"),
    [(lambda t: subset(strided(t)), "proven"), (lambda t: content(strided(t), "torch.Tensor"), "likely")],
    ids=["subsets", "drawn by hand"],
)
def test_parts_of_different_splits_overlap(dataset, certainty):
    (one,) = found("DDP503", lambda t: t.plain(dataset(t), sampler=RANDOM, rng=f"{t.rank}"))
    assert one.certainty == certainty and len(one.culprits) > 1
    assert one.severity == ("error" if certainty == "proven" else "warning")


@pytest.mark.parametrize(
    ("kept", "culprits"),
    [
        (lambda rank: range(100 * rank, 100 * rank + 100) if rank < 3 else range(50, 350, 3), [(3,)]),
        (lambda rank: range(50 * rank, 100 + 60 * rank), []),
    ],
    ids=["one overlaps with each other", "other sizes were not meant to be parts"],
)
def test_data_sets_of_ones_own(kept, culprits):
    drawn = found("DDP503", lambda t: t.plain(content(kept(t.rank), "user.Shard"), sampler=RANDOM, rng=f"{t.rank}"))
    assert [one.culprits for one in drawn] == culprits


HEADS = [5.0, 6.0, 7.0, 8.0]


def over(trainer, heads):
    trainer.loader(trainer.dataset({"class": "user.Files"}), own=True, sampler="user.Blocks", length=None)
    return trainer.loops(heads=heads)


def test_batches_of_ones_own_sampler_that_are_the_same_on_all_ranks():
    (one,) = found("DDP501", lambda t: over(t, HEADS))
    assert (one.culprits, one.severity, one.certainty) == (ALL, "warning", "likely")


@pytest.mark.parametrize("heads", [[5.0] * 4, HEADS[:2], [*HEADS[:3], 0.0], [], None], ids=str)
def test_batches_that_prove_nothing(heads):
    assert found("DDP501", lambda t: over(t, [5.0 + t.rank, *HEADS[1:]] if heads is None else heads)) == []


def test_ranks_that_share_their_inputs_on_purpose():
    def parallel(trainer):
        over(trainer, HEADS).made.event("replicated tensor", number=1, ranks=[*ALL], digest="a", shape=[4])

    assert found("DDP501", parallel) == []


@pytest.mark.parametrize(("op", "replicas"), [("reduce_scatter_tensor", True), ("all_reduce", False)])
def test_a_sharded_model_makes_its_ranks_replicas(op, replicas):
    def sharded(trainer: Trainer):
        trainer.made = Rank(trainer.rank, trainer.world).calls(op, LOOP)
        over(trainer, HEADS)

    assert len(found("DDP501", sharded)) == replicas


def test_a_rank_that_trains_on_nothing_yet_may_have_split_as_either_side():
    def make(trainer):
        parts = [subset(range(200)), subset(range(200, 400))]
        trained, held_out = parts if trainer.rank == 0 else parts[::-1]
        if trainer.rank < 3:
            trainer.loops(trainer.loader(trainer.dataset(trained)))
            trainer.loops(trainer.loader(trainer.dataset(held_out)), EVALUATE, steps=0)

    (one,) = found("DDP503", make, finish=False)
    assert (one.culprits, one.sides) == ((), ((1, 2), (0,)))


@pytest.mark.parametrize(("state", "codes"), [("done", ["DDP503"]), ("open", [])])
def test_a_loop_that_has_just_begun_is_no_evaluation(state, codes):
    """It may be trained on in a moment, as the next part of a cross-validation."""

    def make(trainer):
        parts = [subset(range(200)), subset(range(200, 400))]
        first, then = parts if trainer.rank == 0 else parts[::-1]
        trainer.loops(trainer.loader(trainer.dataset(first)))
        trainer.loops(trainer.loader(trainer.dataset(then)), EVALUATE, steps=0, state=state)

    assert [one.code for one in found("DDP503", make, finish=False)] == codes
