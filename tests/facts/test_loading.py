"""What ranks recorded of their data; it may be anything."""

from __future__ import annotations

import pytest

from ddpnb.facts.loading import replica_groups, views
from ddpnb.facts.snapshot import Snapshot
from ddpnb.model.recording import Recording
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


def test_nobody():
    assert (views(Recording(0, {})), replica_groups(Recording(0, {}))) == ({}, [])
