"""DDP417: a group exists, each rank trains, and nothing is ever synchronised."""

from __future__ import annotations

import pytest

from tests.rules.recordings import Rank, diagnose, line, record
from tests.rules.training import tensor

STEP = line(20)
NET = (tensor("fc.weight", (64, 64)), tensor("fc.bias", (64,)))
NUMBER = 1000


def alone(rank, steps=4, each=None, before=None, model=NET, drift=None, **adopted):
    """Trains without a wrapper; ``each``: what it does after every step, ``before``: before the first."""
    one = Rank(rank, 2)
    if before is not None:
        before(one)
    one.adopts(*model, number=NUMBER, **adopted).optimizes(STEP, model=NUMBER)
    one.drifts({"fc.weight": 100 + rank if drift is None else drift, "fc.bias": 200 + rank if drift is None else drift})
    for _ in range(steps):
        one.backward(STEP, model=NUMBER)
        one.gradients(STEP, model=NUMBER, odd={"fc.weight": 70 + rank, "fc.bias": 80 + rank})
        one.updated(STEP, model=NUMBER)
        if each is not None:
            each(one)
    return one


def found(make):
    diagnosis = diagnose(record(*(make(rank).finishes() for rank in range(2))))
    return diagnosis, [finding for finding in diagnosis.findings if finding.code == "DDP417"]


def test_models_that_nothing_synchronises_are_a_warning():
    diagnosis, (finding,) = found(alone)
    assert (diagnosis.outcome, diagnosis.errors) == ("ok", ())
    assert (finding.severity, finding.certainty, finding.culprits) == ("warning", "likely", (0, 1))
    assert "in 4 optimizer steps of SGD" in finding.summary
    assert finding.evidence[0] == "Rank 0: 4 optimizer steps, no collectives since the first."
    assert any("fc.weight" in text for text in finding.evidence)
    assert {site.line for _, site in finding.where} == {20}


@pytest.mark.parametrize(
    "each",
    [
        lambda one: one.calls("all_reduce", shape=()),
        lambda one: one.calls("all_reduce", shape=(3,)),
        lambda one: one.calls("barrier"),
        lambda one: one.calls("all_gather", shape=(100_000,), dtype="uint8"),
    ],
    ids=["a loss", "metrics", "a barrier", "objects"],
)
def test_metrics_and_objects_synchronise_nothing(each):
    _, (finding,) = found(lambda rank: alone(rank, each=each))
    assert finding.evidence[0].startswith("Rank 0: 4 optimizer steps, 4 collectives (the last: ")


def test_a_broadcast_before_the_first_step_is_not_enough():
    _, (finding,) = found(lambda rank: alone(rank, before=lambda one: one.calls("broadcast", shape=(64, 64), root=0)))
    assert finding.evidence[0] == "Rank 0: 4 optimizer steps, no collectives since the first."


@pytest.mark.parametrize(
    "make",
    [
        lambda rank: alone(rank, each=lambda one: one.calls("all_reduce", shape=(64, 64))),
        lambda rank: alone(rank, each=lambda one: one.calls("all_reduce", shape=(4160,), dtype="bfloat16")),
        lambda rank: alone(
            rank,
            each=lambda one: one.calls("all_reduce", shape=(8, 8)),
            model=tuple(tensor(f"{n}.weight", (8, 8)) for n in range(6)),
        ),
        lambda rank: alone(rank, each=lambda one: one.sends(1 - rank, shape=(2,))),
        lambda rank: alone(rank, each=lambda one: one.calls("all_to_all_single", shape=(8,))),
        lambda rank: alone(rank, drift=7),
        lambda rank: alone(rank, steps=1),
        lambda rank: alone(rank, sharded=True),
        lambda rank: alone(rank, model=(tensor("fc.weight", (64, 64 + rank)),)),
        lambda rank: alone(rank).forgets(3),
        lambda rank: alone(rank).absent(),
        lambda rank: alone(rank).joined(world_size=1),
        lambda rank: alone(rank).wraps(number=3),
    ],
    ids=[
        "gradients", "one bucket", "one of many", "a pipeline", "experts", "equal", "one step", "sharded", "other models", "unknown calls",
        "no group", "groups of one", "another is wrapped",
    ],
)  # fmt: skip
def test_what_is_synchronised_or_meant_to_differ_is_silent(make):
    assert found(make)[1] == []


def test_a_failure_comes_alone():
    recording = record(alone(0).raises("ValueError", "bad", STEP), alone(1).raises("ValueError", "bad", STEP))
    assert [finding.code for finding in diagnose(recording).findings] == ["DDP312"]


def test_a_search_for_hyper_parameters_is_silent():
    def make(rank):
        one = Rank(rank, 2).adopts(*NET, number=NUMBER).optimizes(STEP, model=NUMBER)
        one.drifts({"fc.weight": 100 + rank, "fc.bias": 200 + rank})
        for _ in range(4):
            one.backward(STEP, model=NUMBER).gradients(STEP, model=NUMBER, lr=0.1 + rank).updated(STEP, model=NUMBER)
        return one

    assert found(make)[1] == []
