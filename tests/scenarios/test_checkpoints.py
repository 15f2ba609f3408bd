"""Numbered checkpoints on ranks: recorded with their lines, numbered again in each run."""

from __future__ import annotations

import pytest

from ddpnb.recording.events.runs import Checkpoint
from tests.recorder.events.test_checkpoints import LINE

pytestmark = pytest.mark.world


def train(steps):
    import ddpnb

    ddpnb.checkpoint("begin")
    for step in range(steps):
        ddpnb.checkpoint(f"step {step}")


@pytest.mark.full
def test_a_run_on_engines(world):
    for steps in (2, 1):
        run = world.run(train, steps, stream=None).wait(60)
        for rank, record in run.recording.ranks.items():
            found = record.events(Checkpoint)
            names = ["begin", *(f"step {step}" for step in range(steps))]
            assert [(one.number, one.name) for one in found] == list(enumerate(names, 1))
            first = train.__code__.co_firstlineno
            assert [one.site.line - first for one in found] == [3, *[5] * steps]
            assert {one.site.file for one in found} == {__file__}
            lines = [LINE.fullmatch(line) for line in run.log(rank).splitlines(keepends=True) if "CHECKPOINT" in line]
            assert [line.groups()[1:4] for line in lines] == [(str(rank), str(world.size), str(rank))] * len(names)
            assert [line[7] for line in lines] == names
