"""Batches of another structure, and numbers that are no longer finite, on some ranks."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ddpnb.recording.phrases import besides
from tests.rules.data import trainers
from tests.rules.data.trainers import content
from tests.rules.divergence.steps import STEP, backward, found, recorded, some, step
from tests.rules.recordings import Rank, asked, line, record
from tests.rules.training import tensor

NAN, INF = math.nan, math.inf
BAD = {"inputs_finite": 0.0}
PLAIN, BOXES = "{image: float32[2d]}", "{image: float32[2d], box: float64[2d]}"


def both(taken):
    """The codes and culprits of bad samples and bad numbers."""
    return [(one.code, one.culprits) for code in ("DDP508", "DDP414") for one in asked(code, taken)]


# -- structures of batches


def trains(kinds, classes=("user.Files",) * 4):
    def make(trainer):
        rank = trainer.rank
        trainer.dataset(content(range(100 * rank, 100 * rank + 100), classes[rank]))
        trainer.loader(own=True)
        trainer.loops(kinds=kinds[rank])

    return trainers.found("DDP508", make, world=len(kinds))


def test_one_rank_has_another_field():
    (one,) = trains([{PLAIN: 1}, {PLAIN: 1}, {BOXES: 1}, {PLAIN: 1}])
    assert (one.culprits, one.severity, one.certainty) == ((2,), "warning", "likely")
    assert one.evidence[:2] == (f"Rank 2: {BOXES}.", f"Rank 0: {PLAIN}.")


def test_of_two_ranks_neither_is_named():
    (one,) = trains([{BOXES: 1}, {PLAIN: 1}])
    assert one.sides == ((0,), (1,)) and one.summary.startswith("The batches of ranks 0 and 1 have different")


@pytest.mark.parametrize(
    "kinds",
    [
        [{PLAIN: 1}] * 4,
        [{PLAIN: 1, BOXES: 3}, {PLAIN: 1}, {BOXES: 1, PLAIN: 2}, {PLAIN: 1}],  # some samples have the field
        [{PLAIN: 1}, {PLAIN: 1}, {BOXES: 1}, {}],  # not known of all
        [{PLAIN: 1}, {BOXES: 1}, {PLAIN: 1, BOXES: 9}, {PLAIN: 1}],
        ["nonsense", 3, None, []],
    ],
    ids=["alike", "now and then", "unknown", "one has both", "nonsense"],
)
def test_structures_that_say_nothing(kinds):
    assert trains(kinds) == []


def test_ranks_that_do_something_else():
    assert trains([{PLAIN: 1}, {BOXES: 1}] * 2, ("user.Pictures", "user.Boxes") * 2) == []


@pytest.mark.parametrize("world", [2, 4])
def test_a_batch_unlike_those_before(world):
    def make(rank):
        return step(step(rank), forward={"inputs": "list of 3"} if rank.rank == 1 else {})

    (one,) = found("DDP508", make, world=world)
    assert (one.culprits, one.severity, one.waiting) == ((1,), "warning", besides(range(world), (1,)))
    assert "list of 3" in one.evidence[0] and "forward 2" in one.summary


@pytest.mark.parametrize(
    "make",
    [
        some((2,), lambda r: step(r, forward={"inputs": "pair of float32"}, steps=2), lambda r: step(r, steps=2)),
        lambda r: step(step(r), forward={"inputs": "list"}),
    ],
    ids=["always of its own kind", "on all ranks"],
)
def test_inputs_that_are_no_bad_sample(make):
    assert found("DDP508", make) == []


# -- numbers that are not finite


@pytest.mark.parametrize("culprits", [(0,), (0, 1, 3)], ids=str)
@pytest.mark.parametrize(("loss", "word"), [(NAN, "NaN"), (-INF, "infinite")])
def test_a_loss_on_some_ranks(culprits, loss, word):
    make = some(culprits, lambda r: step(step(r, steps=2), backward={"loss": loss}), lambda r: step(r, steps=3))
    (one,) = found("DDP414", make)
    assert (one.severity, one.culprits, one.waiting) == ("error", culprits, besides(range(4), culprits))
    assert "backward 3" in one.summary and word in one.summary
    assert f"Rank {culprits[0]}: loss {loss}." in one.evidence and dict(one.where)[culprits[0]] == STEP


def test_a_loss_in_a_step_that_is_not_looked_at():
    """Then only the ranks where it is have told of it."""

    def make(rank):
        step(rank, steps=2)
        if rank.rank == 1:
            rank.backward(STEP, loss=NAN, turn=71)
        rank.backward(STEP, loss=NAN, turn=81)

    taken = recorded(make)
    gone_on = replace(taken, ranks={r: replace(one, forwards=82) for r, one in taken.ranks.items()})
    (one,) = asked("DDP414", gone_on)
    assert one.culprits == (1,) and "backward 71" in one.summary
    assert both(taken) == []  # whether the others have come so far is not known


@pytest.mark.parametrize("forward", [BAD, {}], ids=["seen in forward", "looked at when the loss was bad"])
def test_a_bad_batch_is_the_reason_of_such_a_loss(forward):
    bad = some(
        (3,), lambda r: step(step(r), forward=forward, backward={**BAD, "loss": NAN}), lambda r: step(r, steps=2)
    )
    assert both(recorded(bad)) == [("DDP508", (3,))]
    assert found("DDP508", bad)[0].severity == "error"


def test_a_bad_batch_that_all_ranks_left_out_is_a_note():
    (one,) = found("DDP508", some((1,), *(lambda r, f=f: step(step(r).forward(STEP, **f)) for f in (BAD, {}))))
    assert (one.severity, one.culprits) == ("note", (1,))
    assert one.evidence[1:] == (
        "No rank ran backward on it.",
        "All ranks dealt with it alike: in forward 3 they hold the same finite parameters.",
    )


def test_a_bad_batch_whose_gradients_are_kept_for_the_next_step():
    kept = (lambda r, f=f: step(step(r).forward(STEP, **f).backward(STEP)) for f in (BAD, {}))
    (one,) = found("DDP508", some((1,), *kept))
    assert "No rank ran backward on it." not in one.evidence


def test_of_a_loss_and_a_later_batch_the_loss_is_the_reason():
    def make(rank):
        step(step(rank, steps=2), backward={"loss": NAN if rank.rank == 1 else 1.0})
        rank.forward(STEP, inputs_finite=0.0 if rank.rank == 2 else 1.0)

    assert both(recorded(make)) == [("DDP414", (1,))]


@pytest.mark.parametrize(
    "make",
    [
        lambda r: r.trains(5, STEP),
        lambda r: step(step(r), backward={"loss": NAN}),  # a learning rate that is too high: it began nowhere
        lambda r: step(step(r), forward=BAD),
        lambda r: step(step(r, backward={"loss": NAN}), backward={"loss": NAN if r.rank else 1.0}),
        lambda r: step(r, forward={"inputs_finite": NAN}, backward={"loss": 0.0}),
    ],
    ids=["all is well", "losses of all", "inputs of all", "after that", "not known"],
)
def test_nothing_began_on_one_rank(make):
    assert both(recorded(make)) == []


def alone(rank):
    """Each rank trains a model of its own."""
    for turn in range(4):
        own = {name: 1000 * turn + place + rank.rank for place, name in enumerate(("fc.weight", "fc.bias"))}
        rank.backward(STEP, loss=NAN if rank.rank == 2 else 0.5).gradients(STEP, odd=own).updated(STEP, odd=own)


def test_models_that_are_no_replicas():
    assert both(recorded(alone, wraps=False)) == []
    taken = record(*(step(Rank(n, 2).wraps(tensor(f"t{n}")), backward={"loss": NAN if n else 1.0}) for n in range(2)))
    assert both(taken) == []


def arrives(rank, arrived, norm):
    """A step of a gradient that came back so, with gradients of this norm for the optimizer."""
    step(rank).forward(STEP).backward(line(12)).gradients(line(13), arrived_finite=arrived)
    last = rank._samples[-1]
    rank._samples[-1] = replace(last, digests={name: replace(one, norm=norm) for name, one in last.digests.items()})
    return rank.updated(STEP)


def test_a_gradient_that_comes_back():
    make = lambda norm: some((2,), lambda r: arrives(r, 0.0, norm), lambda r: arrives(r, 1.0, norm))  # noqa: E731
    (one,) = found("DDP414", make(None))
    assert (one.culprits, one.waiting, dict(one.where)[2]) == ((2,), (0, 1, 3), line(12))
    assert found("DDP414", make(1.5)) == []  # a GradScaler left that step out on all ranks


def test_averaged_gradients_alone():
    (one,) = found("DDP414", lambda rank: arrives(arrives(rank, 1.0, 1.5), 1.0, None))
    assert (one.culprits, one.severity) == ((), "warning") and "averaged gradients" in one.summary


def unsound(backward_of, **more):
    """Before its first optimizer step a model without a wrapper is not known, and a sharded one never is."""

    def make(rank):
        for title in more.get("after", ()):
            rank.event(title)
        if rank.rank in backward_of:
            rank.event("loss not finite", STEP, loss="nan", backward=backward_of[rank.rank])
        step(rank, steps=2)

    return found("DDP414", make)


@pytest.mark.parametrize(("of", "culprits"), [({1: 1}, (1,)), ({0: 1, 2: 1, 3: 2}, (0, 2))])
def test_losses_of_a_model_that_is_not_looked_at(of, culprits):
    (one,) = unsound(of)
    assert (one.culprits, one.waiting) == (culprits, besides(range(4), culprits))
    assert one.summary.startswith("Since backward 1 the loss is NaN on rank")
    assert one.certainty == ("proven" if len(of) == 1 else "likely")


def test_losses_that_are_not_finite_on_all_ranks_or_with_a_scaler():
    assert unsound(dict.fromkeys(range(4), 1)) == unsound({1: 1}, after=["scaler made"]) == []


def test_the_place_of_a_loss():
    (one,) = found("DDP414", some((3,), backward(loss=INF)))
    assert one.where[0] == (3, STEP)


@pytest.mark.parametrize(
    ("make", "certainty"),
    [
        (lambda rank: rank.computes(), "likely"),
        (lambda rank: step(rank).computes(), "proven"),
        (lambda rank: rank.finishes(), "proven"),
    ],
    ids=["not there yet", "past it", "ended"],
)
def test_a_rank_that_is_behind_may_come_to_such_a_loss_as_well(make, certainty):
    ranks = [step(Rank(n, 2).adopts()) for n in range(2)]
    ranks[0].event("loss not finite", STEP, loss="nan", backward=2)
    make(ranks[1])
    (one,) = asked("DDP414", record(*ranks))
    assert (one.culprits, one.certainty) == ((0,), certainty)
