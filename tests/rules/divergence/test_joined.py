"""Replicas that are equal after Join, until the optimizers step again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording import recording_file
from ddpnb.recording.events.data import JoinEntered
from ddpnb.rules.divergence.replicas import replicas
from ddpnb.rules.rule import findings_of
from tests.recordings.scenario import FOLDER


def adam():
    return recording_file.load(FOLDER / "remedies" / "adam_after_join.ddpnb")


def with_rank(recording, rank, **changes):
    return replace(recording, ranks={**recording.ranks, rank: replace(recording.ranks[rank], **changes)})


def without(recording, rank, chosen):
    history = tuple(event for event in recording.ranks[rank].history if not chosen(event))
    return with_rank(recording, rank, history=history)


def test_the_steps_of_each_rank_and_the_tensors_are_named():
    (found,) = findings_of(adam(), replicas)
    assert (found.code, found.severity, found.certainty, found.culprits) == ("DDP410", "error", "proven", (0, 1))
    assert found.evidence[:2] == ("Rank 0: 6 steps of Adam before.", "Rank 1: 4 steps of Adam before.")
    assert set(found.tensors) <= {"weight", "bias"} and found.tensors
    assert all(function == "train" for function in (site.function for _, site in found.where))


def is_last_join(recording, rank):
    last = recording.ranks[rank].events(JoinEntered)[-1]
    return lambda event: event is last


@pytest.mark.parametrize(
    "change",
    [
        lambda taken: without(taken, 1, lambda event: isinstance(event, JoinEntered)),
        lambda taken: without(taken, 1, is_last_join(taken, 1)),
        lambda taken: with_rank(taken, 1, events_forgotten=3),
        lambda taken: with_rank(taken, 1, samples=()),
    ],
    ids=["one under no Join", "another number of them", "events forgotten", "no samples"],
)
def test_what_is_not_known_of_a_rank_proves_nothing(change):
    assert findings_of(change(adam()), replicas) == ()
