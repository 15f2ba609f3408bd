"""Scripts of a World whose ranks get new processes first."""

from __future__ import annotations

import os

import pytest

from ddpnb.errors import UsageError
from tests.conftest import alive

pytestmark = [pytest.mark.world]


def test_new_processes_in_which_armed_holds_and_faults_apply_and_cells_follow(world, victims):
    before = world.pids()
    world.init()
    world.inject("raise", ranks=1, seq=2)
    holding = world.hold(seq=1, ranks=0)
    run = world.run(victims / "missing.py", "early_return", fresh=True, stream=None)
    assert world.startup is None
    assert not {*before} & {*world.pids()} and not any(map(alive, before))
    assert holding.wait(240).held == (0,)
    holding.remove()
    world.resume(0)
    assert run.wait(60).outcome in ("hang", "crash")
    world.restart()
    world.heal()
    assert world.run(os.getpid, stream=None).wait(60).results == world.pids()


def test_functions_keep_their_processes(world):
    with pytest.raises(UsageError, match="fresh=True is for scripts"):
        world.run(os.getpid, fresh=True)
