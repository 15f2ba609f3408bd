"""Scripts of a World in processes of their own."""

from __future__ import annotations

import os
import time

import pytest

from ddpnb.errors import UsageError, WorldError
from tests.conftest import alive

pytestmark = [pytest.mark.world]


def test_a_script_in_fresh_processes(world, tmp_path):
    script = tmp_path / "s.py"
    script.write_text("import os, sys\nprint(os.getpid(), 'ipykernel' in sys.modules, sys.argv[1:])\n")
    own = world.pids()
    run = world.run(script, "a", "b", fresh=True, stream=None).wait(60)
    assert run.outcome == "ok"
    told = [run.log(rank).split(maxsplit=2) for rank in range(world.size)]
    assert all(int(pid) not in own and (engine, rest) == ("False", "['a', 'b']\n") for pid, engine, rest in told)
    assert world.pids() == own
    assert world.run(os.getpid, stream=None).wait(60).results == own


@pytest.mark.full
def test_a_hang_in_fresh_processes_is_inspected_and_released(world, victims):
    own = world.pids()
    run = world.run(victims / "missing.py", "early_return", fresh=True, stream=None).wait(60)
    assert (run.outcome, run.diagnosis.findings[0].code) == ("hang", "DDP301")
    fresh = world.pids()
    assert not {*own} & {*fresh}
    assert world.status()[0].state == "waiting"
    assert world.snapshot().ranks[0].main_stack is not None
    with pytest.raises(WorldError, match="still in run"):
        world.run(victims / "missing.py", "early_return")
    assert 0 in world.release().ranks
    assert run.wait(30).outcome == "hang"
    assert world.run(os.getpid, stream=None).wait(60).results == own
    assert not any(map(alive, fresh))


@pytest.mark.full
def test_restart_ends_fresh_processes_and_no_others(world, victims):
    own = world.pids()
    world.run(victims / "missing.py", "early_return", fresh=True, stream=None).wait(60)
    fresh = world.pids()
    world.restart()
    assert world.pids() == own
    assert not any(map(alive, fresh))


@pytest.mark.full
def test_faults_and_holds_that_were_armed_before(world, victims):
    world.inject("raise", ranks=1, seq=2)
    holding = world.hold(seq=1, ranks=0)
    run = world.run(victims / "missing.py", "early_return", fresh=True, stream=None)
    deadline = time.monotonic() + 240
    while world.status().held != (0,) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert world.status().held == (0,)
    holding.remove()
    world.resume(0)
    run.wait(60)
    assert run.outcome in ("hang", "crash")
    world.restart()
    world.heal()


def test_functions_have_no_processes_of_their_own(world):
    with pytest.raises(UsageError, match="fresh=True is for scripts"):
        world.run(os.getpid, fresh=True)
