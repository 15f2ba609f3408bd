"""Batches of another kind on some ranks, as their loaders gave them."""

from __future__ import annotations

import pytest

from ddpnb.rules.data import batches
from tests.rules.data.test_batches import codes, content, found, ranks, recorded

PLAIN, BOXES = "{image: float32[2d]}", "{image: float32[2d], box: float64[2d]}"


def trains(kinds, classes=("user.Files",) * 4):
    def make(trainer):
        trainer.dataset(content(range(100 * trainer.rank, 100 * trainer.rank + 100), classes[trainer.rank]))
        trainer.loader(own=True)
        trainer.loops(kinds=kinds[trainer.rank])

    return make


def test_one_rank_has_another_field():
    (finding,) = found(trains([{PLAIN: 1}, {PLAIN: 1}, {BOXES: 1}, {PLAIN: 1}]))
    assert (finding.code, finding.culprits, finding.severity) == ("DDP508", (2,), "warning")
    assert finding.evidence[:2] == (f"Rank 2: {BOXES}.", f"Rank 0: {PLAIN}.")


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
def test_nothing_is_said(kinds):
    assert found(trains(kinds)) == []


def test_ranks_that_do_something_else():
    assert found(trains([{PLAIN: 1}, {BOXES: 1}] * 2, ("user.Pictures", "user.Boxes") * 2)) == []


def test_of_two_ranks_neither_is_named():
    def make(trainer):
        trainer.dataset(content(range(100 * trainer.rank, 100 * trainer.rank + 100)))
        trainer.loader(own=True)
        trainer.loops(kinds={BOXES: 1} if trainer.rank == 0 else {PLAIN: 1})

    (finding,) = batches.find(recorded(ranks(make, 2)))
    assert codes([finding]) == [("DDP508", "warning", [])]
    assert finding.sides == ((0,), (1,))
    assert finding.summary.startswith("The batches of ranks 0 and 1 have different structures")
