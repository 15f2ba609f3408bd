"""A command in which nothing happens, before it has made a process group."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from ddpnb.world.before_group import BeforeGroup

PATIENCE_S = 0.6
SCRIPT = """
import time
def prepare():
    time.sleep(60)
prepare()
"""


@pytest.fixture
def looked(tmp_path):
    """Look at a command until it has been idle for some time."""
    started = []

    def look(*command, elsewhere=False, seconds=2.5, folder=""):
        started.append(subprocess.Popen(command))
        said = []
        before = BeforeGroup(started[0].pid, elsewhere=elsewhere, patience=PATIENCE_S, say=said.append, folder=folder)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not before.hangs(2 * PATIENCE_S):
            if before.is_due:
                before.look()
            time.sleep(0.05)
        return before, said

    yield look
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("elsewhere", "which"), [(False, "all processes"), (True, "the processes on this host")])
def test_the_line_at_which_a_program_waits_is_said_once(looked, tmp_path, elsewhere, which):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    before, said = looked(sys.executable, str(script), elsewhere=elsewhere, seconds=20)
    assert before.hangs(PATIENCE_S)
    assert f"no process group has been made, and {which} have been idle for 1 s:" in said
    assert f"is at {script}:4 in prepare" in said[1] and len(said) == 2


def test_a_process_that_waits_for_others_in_init_rpc(looked, tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(
        f"from ddpnb.recording import rpc\nrpc.note({str(tmp_path)!r}, ('worker', None, 1), {{'world_size': 3}})\n{SCRIPT}"
    )
    _, said = looked(sys.executable, str(script), seconds=20, folder=str(tmp_path))
    assert said[1].endswith("in prepare: it waits in init_rpc, 1 of 3 ranks have joined")


def test_a_command_that_is_no_program_in_python(looked):
    before, said = looked("sleep", "60")
    assert before.hangs(PATIENCE_S)
    assert said == ["no process group has been made, and all processes have been idle for 1 s."]


def test_a_command_that_may_start_ranks_on_other_hosts_does_not_hang(looked):
    before, said = looked("sleep", "60", elsewhere=True)
    assert not before.hangs(PATIENCE_S)
    assert len(said) == 1 and "they may wait for resources" in said[0]


def test_one_that_computes_is_not_idle(looked):
    before, said = looked(sys.executable, "-c", "while True: pass")
    assert not before.hangs(PATIENCE_S) and not said
