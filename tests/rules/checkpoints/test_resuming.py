"""Runs that resume from a checkpoint, and what of it they do not restore."""

from __future__ import annotations

import pytest

from tests.rules.recordings import Rank, asked, line, record

READ = line(5)


def resumes(*after, **facts):
    """Two ranks read a checkpoint and load an optimizer; then these events."""
    ranks = []
    for number in (0, 1):
        rank = Rank(number, 2).event("checkpoint read", READ, path="/last.pt", **facts).loads("optimizer")
        for title, told in after:
            rank.event(title, **told)
        ranks.append(rank)
    return asked("DDP606", record(*ranks))


def test_a_state_of_a_generator_that_is_not_restored():
    (found,) = resumes(generators=["noise"])
    assert (found.culprits, found.certainty) == ((0, 1), "likely")
    assert found.where == ((0, READ), (1, READ)) and "its RNG state (noise) is never restored" in found.summary


@pytest.mark.parametrize(
    ("facts", "after"),
    [({"generators": ["noise"]}, [("rng restored", {})]), ({"keys": ["rng_seed", "random_crop"]}, [])],
    ids=["restored", "only names"],
)
def test_nothing_is_said(facts, after):
    assert resumes(*after, **facts) == []


LOOP = line(9)


@pytest.mark.parametrize(("loops", "forgotten"), [((25, 25), True), ((10, 25), False), ((25,), False)], ids=str)
def test_an_epoch_that_begins_again_from_its_beginning(loops, forgotten):
    """A sampler may leave out the batches already done: then the first epoch is shorter than the next."""
    ranks = []
    for number in (0, 1):
        rank = Rank(number, 2).event("checkpoint read", READ, path="/last.pt", numbers={"batch": 15}).loads("optimizer")
        rank.event("loader", LOOP, loader=0, kind="map", own=True)
        for batches in loops:
            rank.event("data loop", LOOP, loader=0, batches=batches, steps=batches, complete=True)
        ranks.append(rank)
    found = asked("DDP606", record(*ranks))
    assert ["starts from the beginning again, not at batch 15" in one.summary for one in found] == [True] * forgotten
