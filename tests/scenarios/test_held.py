"""Ranks that are held in hard places, and what is said of them meanwhile: threads, loaders, time, runs that follow, and hangs that a step meets."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time

import psutil
import pytest

from ddpnb.recording import verbs

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 does not report lines"),
]

_VICTIMS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "victims")
SCRIPT, TRAINING = os.path.join(_VICTIMS, "held.py"), os.path.join(_VICTIMS, "lines.py")
HELD_S = 3


def at(mark):
    with open(SCRIPT) as text:
        return next(number for number, line in enumerate(text, 1) if line.endswith(f"# {mark}\n"))


def test_a_thread_that_is_held_is_what_one_looks_at_and_steps(world):
    holding = world.hold(f"held.py:{at('prepared')}", ranks=(1, 2), when="item == 6")
    run = world.run(SCRIPT, "threads", patience=0.7)
    status = holding.wait(60)
    assert status.held == (1, 2) and "in the thread preparation" in status[1].doing
    assert world.evaluate("item", ranks=1)[1].value == 6
    shown = world.diff()
    assert shown.found.function == "prepare" and {*shown.found.sites} == {1, 2}
    assert "prepare" in [one.function for one in world.snapshot().ranks[1].shown_stack.user_frames]
    time.sleep(1.2)  # longer than a rank may stand anywhere else
    assert run.outcome == "running" and not run.diagnosis.errors
    assert world.step(how="over", ranks=1)[1].site.line == at("prepared") - 1
    holding.remove()
    world.resume()
    run.wait(60)
    assert run.outcome == "ok" and "result 13" in run.log(1)


def test_who_waits_for_a_run_is_told_that_ranks_are_held_and_their_time_counts_for_nobody(world):
    holding = world.hold("lines.py:21", ranks=1, when="step == 2")
    said = io.StringIO()
    run = world.run(TRAINING, stream=said, patience=0.7)
    assert holding.wait(60).held == (1,)
    began = time.monotonic()
    assert not run.wait(HELD_S).done and run.outcome == "running"
    held_s = time.monotonic() - began
    assert "Rank 1 is held, and the run waits: held before the line" in said.getvalue()
    assert said.getvalue().count("is held") == 1
    holding.remove()
    world.resume()
    run.wait(60)
    assert run.outcome == "ok" and not run.diagnosis.findings
    account = run.account
    assert account.ranks[1].parts.held >= held_s - 0.5
    assert all(0 <= one.parts.compute <= one.wall_s - one.parts.held for one in account.ranks)
    assert all("it was held for" in one.because for one in account.stragglers if one.rank == 1)


@pytest.mark.full
def test_a_hold_ends_with_its_run_and_one_that_is_kept_does_not(world):
    holding = world.hold("lines.py:value_of()", ranks=0, when="step == 1", keep=True)
    world.hold("lines.py:value_of()", ranks=0, when="step == 2")
    for stops in (2, 1):
        run = world.run(TRAINING)
        for step in range(1, stops + 1):
            assert holding.wait(60).held == (0,)
            assert world.evaluate("step", ranks=0)[0].value == step
            world.resume()
        run.wait(60)
        assert run.outcome == "ok"
    holding.remove()


def test_a_step_over_a_collective_in_which_others_do_not_come_is_a_hang(world):
    holding = world.hold(f"held.py:{at('alone')}", ranks=1)
    run = world.run(SCRIPT, "apart")
    assert holding.wait(60).held == (1,)
    status = world.step(how="over", ranks=1, timeout=30)
    assert status[1].state == "waiting"
    run.wait(60)
    assert run.outcome == "hang" and run.diagnosis.findings[0].waiting == (1,)
    world.release()


@pytest.mark.full
def test_a_worker_of_a_loader_passes_a_hold_and_that_is_said(world):
    world.hold(f"held.py:{at('read')}", ranks=0)
    run = world.run(SCRIPT, "loader").wait(60)
    assert run.outcome == "ok" and "result 60" in run.log(0)
    assert "a worker of a data loader) has passed a hold" in " ".join(run.missed)


def test_a_hold_that_cannot_be_evaluated_and_one_that_is_never_met_are_named(world):
    world.hold("lines.py:21", ranks=2, when="no_such_name")
    world.hold("lines.py:value_of()", when="step > 100")
    run = world.run(TRAINING).wait(60)
    assert run.outcome == "ok"
    failed, never = sorted(run.missed, key=lambda text: "value_of" in text)
    assert failed.startswith("the hold at lines.py:21 when no_such_name stopped nobody on rank 2: NameError:")
    assert "value_of() when step > 100 stopped nobody on ranks 0-3" in never


def test_all_holds_are_removed_by_whom_did_not_make_them(world):
    world.hold("lines.py:21", ranks=(0, 1))
    run = world.run(TRAINING)
    deadline = time.monotonic() + 60
    while len(world.status().held) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert world.step(how="over", timeout=30).held == (0, 1)
    world.unhold()
    assert not any(gate.holds for gate in world._ranks.ask(range(4), verbs.Gate()).values())
    world.resume()
    assert run.wait(60).outcome == "ok"


_KERNEL = """
import os, signal, sys, ddpnb
world = ddpnb.launch(2, quiet=True, fork=True)
holding = world.hold("lines.py:21")
world.run(sys.argv[1])
assert holding.wait(200).held == (0, 1)
print(*world.pids(), flush=True)
world.close() if "close" in sys.argv else os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.full
@pytest.mark.parametrize("how", ["close", "kill"])
def test_held_ranks_end_with_their_world_and_with_its_kernel(how):
    done = subprocess.run(
        [sys.executable, "-c", _KERNEL, TRAINING, how], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == (0 if how == "close" else -9), done.stderr
    pids = [int(one) for one in done.stdout.split()[-2:]]
    deadline = time.monotonic() + 120
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(psutil.pid_exists, pids))
