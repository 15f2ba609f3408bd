"""What ranks recorded of their data; it may be anything."""

from __future__ import annotations

import pytest

from ddpnb.recording.facts.loading import replica_groups, views
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.recording import Recording
from ddpnb.rules import engine
from tests.rules.data.trainers import recorded


@pytest.mark.parametrize(
    "facts",
    [
        {"loader": "x", "step": None},
        {"loader": 10**40, "batches": float("nan"), "steps": "many", "complete": 1},
        {"loader": 0, "sampler": [], "pass": {}, "line": "a", "file": 3, "batches": -5, "steps": -5},
    ],
    ids=str,
)
def test_nonsense_from_a_rank(facts):
    def odd(trainer):
        trainer.made.phase("dataset", "done", dataset=0, rows=[1], parts={"a": 1})
        trainer.made.phase("dataset", "done", dataset=0, **{"class": 3, "rows": {"sketch": [None, "a"], "order": 7}})
        trainer.made.phase("loader", "done", loader=0, dataset="0", sampler=7)
        trainer.made.phase("sampler", "done", sampler=0, rank="first", **{"pass": 1})
        trainer.made.phase("data loop", "done", **facts)

    taken = recorded(odd)
    assert engine.ask(Snapshot(taken), engine.of_package("data")) == []
    assert all(loop.passed is None for view in views(taken).values() for loop in view.loops)


@pytest.mark.parametrize(("workers", "epochs"), [(0, [0, 1, None]), (2, [0, 1, 2])])
def test_the_pass_of_an_open_loop_is_one_that_belongs_to_it(workers, epochs):
    """Workers are given their first indices before the loop begins; without them no batch was asked for yet."""

    def trains(trainer):
        trainer.loader(trainer.dataset({"class": "x"}), distributed=0, num_workers=workers)
        for epoch in range(3):
            ahead = {"sampler": 0, "pass": 1 + epoch, "epoch": epoch}
            if workers:
                trainer.made.phase("sampler", "done", **ahead)
            trainer.loops(state="open")
            if not workers and epoch < 2:
                trainer.made.phase("sampler", "done", **ahead)

    loops = views(recorded(trains, world=1))[0].loops
    assert [loop.passed.epoch if loop.passed is not None else None for loop in loops] == epochs


def test_nobody():
    assert (views(Recording(0, {})), replica_groups(Recording(0, {}))) == ({}, [])
