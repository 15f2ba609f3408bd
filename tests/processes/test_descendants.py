"""What ranks have started ends with them, also in a session of its own; nothing else is touched."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

import ddpnb
from ddpnb.processes import descendants
from tests.conftest import alive

pytestmark = pytest.mark.world

CHILD = """
import os, subprocess
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
open("pid", "w").write(str(child.pid))
"""
ENDS = {
    "killed": "os.kill(os.getpid(), 9)",
    "exits": "os._exit(0)",
}


@pytest.fixture
def started(tmp_path):
    """The process that the program has started; it is ended after the test."""
    yield lambda: int((tmp_path / "pid").read_text())
    with contextlib.suppress(OSError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def wait_for_end(*pids):
    deadline = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids))


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_child_in_its_own_session_ends_with_its_rank(world, started, tmp_path, monkeypatch, end):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(f"import os\nif os.environ['RANK'] != '0': raise SystemExit\n{CHILD}\n{end}\n")
    world.run("program.py", stream=None).wait(60)
    wait_for_end(started())
    assert all(map(alive, (world.pids()[rank] for rank in range(1, world.size))))


def test_a_daemon_ends_with_the_world(started, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    child = CHILD.replace("\n", "\n    ")
    (tmp_path / "program.py").write_text(
        f"import os\nif (pid := os.fork()) == 0:{child}os._exit(0)\nos.waitpid(pid, 0)"
    )
    with ddpnb.launch(1, backend="gloo", quiet=True) as world:
        assert world.run("program.py", stream=None).wait(60).outcome == "ok"
        assert alive(started())
    wait_for_end(started())


def test_only_processes_with_this_environment(tmp_path):
    def start(folder, rank, *command):
        command = command or ("sleep", "600")
        return subprocess.Popen(command, env={**os.environ, "DDPNB_FOLDER": str(folder), "RANK": str(rank)})

    inner = "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, flush=True); sys.stdin.read()"
    ours = [start(tmp_path, 0), start(tmp_path, 1)]
    other = start(tmp_path / "other", 0)
    spared = subprocess.Popen(
        [sys.executable, "-c", inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "DDPNB_FOLDER": str(tmp_path), "RANK": "0"},
    )  # fmt: skip
    below = int(spared.stdout.readline())
    try:
        descendants.end(str(tmp_path), 0, spare=[spared.pid])
        assert ours[0].wait(10) == -9
        assert all(map(alive, (ours[1].pid, other.pid, spared.pid, below)))
        descendants.end(str(tmp_path))
        assert (ours[1].wait(10), spared.wait(10)) == (-9, -9)
        wait_for_end(below)
        assert alive(other.pid)
    finally:
        for process in (*ours, other, spared):
            process.kill()
            process.communicate()
