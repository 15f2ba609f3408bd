"""Loaders that deliver different numbers of batches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.events.data import LoaderSeen
from ddpnb.recording.facts.uneven_loaders import uneven_loops
from ddpnb.recording.findings import Finding
from ddpnb.rules.finding_types import type_of
from tests.rules.data.trainers import LOOP, found, recorded
from tests.rules.recordings import asked


def uneven(trainer):
    length = 24 if trainer.rank == 1 else 25
    trainer.distributed()
    history = trainer.made._history
    history[:] = [replace(event, length=length) if isinstance(event, LoaderSeen) else event for event in history]


def under_join(trainer):
    trainer.made.phase("join", "done", enable=True)
    uneven(trainer)


def stands(batches=10, done=(), **loader):
    def make(trainer):
        trainer.loader(trainer.dataset({"class": "x"}), sampler="own.Sampler", **loader)
        steps = 0 if not done else None
        trainer.loops(batches=batches, steps=steps, state="done" if trainer.rank in done else "open")

    return make


def test_uneven_numbers_of_batches_are_known_before_they_hurt():
    (one,) = found("DDP504", uneven, finish=False)
    assert (one.severity, one.certainty) == ("warning", "likely")  # they may agree to stop together
    assert (one.culprits, one.where[0]) == ((1,), (1, LOOP))
    assert "Rank 1 has 24 batches" in one.summary and one.summary.endswith("have 25.")
    assert one.evidence[1] == "Rank 1: 24 batches of 4 out of 100 samples."


@pytest.mark.parametrize(("make", "finish"), [(uneven, True), (under_join, False)], ids=["all went well", "join"])
def test_uneven_numbers_that_do_not_matter(make, finish):
    assert found("DDP504", make, finish=finish) == []


def test_uneven_before_the_first_step():
    def make(trainer):
        stands(length=10 + trainer.rank)(trainer)

    assert [one.culprits for one in found("DDP504", make, finish=False)] == [(0,)]


def test_batches_that_nobody_could_count():
    """Where ranks are blocked, a loop that ended on one of them is as good as two numbers."""
    taken = recorded(stands(done=(2,), length=None, kind="iterable"), finish=False)
    assert uneven_loops(taken) is None
    (draft,) = asked("DDP504", taken, Finding(type_of("DDP308"), "x", (2,), (0,)))
    assert (draft.culprits, draft.certainty) == ((2,), "proven")
    one = uneven_loops(taken, stopped=True)
    assert one is not None and one.fewest == (2,) and 0 not in one.counts
