"""Epochs that go over the data in the same order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.events.data import DataLoop
from tests.rules.data.trainers import LOOP, content, found


def epochs(*sampler):
    def trains(trainer):
        trainer.distributed(**sampler[0])
        for facts in sampler[1:]:
            trainer.loops(sampler=facts)

    return found("DDP502", trains)


def test_epoch_is_never_set():
    (one,) = epochs({}, {}, {})
    assert (one.severity, one.culprits, one.where[0]) == ("warning", (0, 1, 2, 3), (0, LOOP))
    assert "not called" in one.summary and "3 consecutive epochs" in one.evidence[0]


def test_epoch_is_set_to_the_same_value():
    (one,) = epochs({"told": 1}, {"told": 2})
    assert "got 0 each time" in one.summary
    assert "at the beginning of each epoch" not in one.remedy  # it was called there


def test_a_sampler_that_is_made_anew():
    assert len(epochs({"sampler": 0}, {"sampler": 1})) == 1


@pytest.mark.parametrize(
    "second",
    [
        {"epoch": 1, "told": 1},
        {"epoch": 1},  # set by hand
        {"seed": 1, "sampler": 1},
        {"shuffle": False},
        {"own": True},
        {"head": "changed"},
        {"dataset": 3},
        {"length": 300},
    ],
    ids=str,
)
def test_epochs_that_differ(second):
    assert epochs({"shuffle": second.get("shuffle", True)}, second) == []


def another_model(trainer):
    trainer.distributed(told=1).wraps().loops(sampler={"told": 2})


def evaluates(trainer):
    trainer.distributed().evaluates(content(range(50)), distributed=1)


def tries(trainer):
    trainer.loader(trainer.dataset(content(range(400))), distributed=0)
    trainer.loops(batches=3, sampler={"told": 1}, complete=False).loops(sampler={"told": 2})


def zips(trainer):
    """Two loops over one permutation, in one epoch."""
    trainer.distributed().loader(0, distributed=1)
    trainer.loops(1, sampler={"sampler": 1})
    history = trainer.made._history
    end = history[-1].ended_ns + 1
    history[:] = [replace(event, ended_ns=end) if isinstance(event, DataLoop) else event for event in history]


@pytest.mark.parametrize("make", [another_model, evaluates, tries, zips])
def test_loops_that_are_no_repeated_epochs(make):
    assert found("DDP502", make) == []
