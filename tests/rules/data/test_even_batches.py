"""Which measures against uneven batches fit a program."""

from __future__ import annotations

import pytest

from tests.rules.data.trainers import FILES, LOOP, content, found
from tests.rules.data.trainers import RANDOM as PLAIN

SAMPLER = "torch.utils.data.distributed.DistributedSampler"
MINIMUM = f"the minimum number of batches of the DataLoader at {LOOP.file}:{LOOP.line}"


def loads(*, dataset=None, sampler=None, **loader):
    """``loader`` and ``sampler``: by fact, what it is on rank 1 and on the others, where that is a pair."""

    def make(trainer):
        def own(facts):
            return {name: one[trainer.rank != 1] if isinstance(one, tuple) else one for name, one in facts.items()}

        number = trainer.dataset(own({"of": dataset or FILES})["of"])
        facts = {"sampler": PLAIN if sampler is None else SAMPLER, "distributed": None if sampler is None else 0}
        trainer.loader(number, **{**facts, "length": 24 + (trainer.rank != 1), **own(loader)})
        trainer.loops(sampler=None if sampler is None else own(sampler))

    return make


def remedy(make, *made):
    """``made``: optimizers, as class and settings."""

    def all_of(trainer):
        trainer.made.wraps()
        make(trainer)
        for name, settings in made:
            trainer.made.event("optimizer made", number=0, **{"class": name, "settings": settings})

    (one,) = found("DDP504", all_of, finish=False)
    return one.remedy


@pytest.mark.parametrize(
    ("make", "measure"),
    [
        (loads(), "DistributedSampler (it gives all ranks equally many samples), "),
        (
            loads(dataset=(content(range(90)), content(range(100)))),
            "DistributedSampler over the whole data set instead of",
        ),
        (loads(distributed=(None, 0)), "DistributedSampler on rank 1 too (it gives"),
        (loads(sampler={}, batch_size=(8, 4)), "the same batch_size (4 on ranks 0, 2 and 3, 8 on rank 1), "),
        (
            loads(sampler={"num_replicas": (5, 4)}),
            "the same num_replicas for DistributedSampler (4 on ranks 0, 2 and 3, 5 on rank 1), ",
        ),
        (
            loads(sampler={"length": (390, 400)}),
            "a data set of the same length for DistributedSampler (400 on ranks 0, 2 and 3, 390 on rank 1), ",
        ),
        (loads(sampler={}, drop_last=(True, False)), "drop_last=True in the DataLoader of all ranks, "),
        (loads(sampler={}, drop_last=True), MINIMUM),
        (loads(own=True, sampler=None), MINIMUM),
    ],
)
def test_what_the_program_lacks_is_named_first(make, measure):
    text = remedy(make)
    start = "Give all ranks the same number of batches: "
    assert text.startswith(start + measure), text
    assert MINIMUM in text


@pytest.mark.parametrize(
    "own", [{"sampler": {}, "drop_last": True}, {"sampler": {}, "batch_size": (8, 4)}, {"own": True}]
)
def test_what_the_program_has_is_not_advised(own):
    assert "DistributedSampler" not in remedy(loads(**own))
    assert "drop_last" not in remedy(loads(**own))


def test_the_length_of_a_stream_is_not_known_before():
    text = remedy(loads(kind="iterable"))
    assert "a flag in each iteration" in text and "minimum" not in text and "DistributedSampler" not in text


@pytest.mark.parametrize(
    ("made", "offered"),
    [
        ((), True),
        ((("SGD", {"lr": 0.1, "momentum": 0.0}),), True),
        ((("SGD", {"lr": 0.1, "momentum": 0.9}),), False),
        ((("AdamW", {"lr": 0.1}),), False),
        ((("SGD", {"lr": 0.1}), ("Adam", {"lr": 0.1})), False),
    ],
)
def test_join_is_not_advised_where_an_optimizer_keeps_a_state(made, offered):
    assert ("Join" in remedy(loads(), *made)) == offered
