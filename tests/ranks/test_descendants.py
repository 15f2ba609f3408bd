"""What ranks have started ends with them, also in a session of its own; nothing else is touched."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

import ddpnb
from ddpnb.errors import WorldError
from ddpnb.ranks import descendants
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
    deadline = time.monotonic() + 240
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


@pytest.mark.full
def test_a_daemon_ends_with_the_world(started, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    child = CHILD.replace("\n", "\n    ")
    (tmp_path / "program.py").write_text(
        f"import os\nif (pid := os.fork()) == 0:{child}os._exit(0)\nos.waitpid(pid, 0)"
    )
    with ddpnb.launch(1, backend="gloo", fork=True, quiet=True, timeout=240) as world:
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
        assert descendants.end((), str(tmp_path), 0, spare=[spared.pid]) == []
        assert ours[0].wait(60) == -9
        assert all(map(alive, (ours[1].pid, other.pid, spared.pid, below)))
        assert descendants.end((), str(tmp_path)) == []
        assert not any(map(alive, (ours[1].pid, spared.pid, below)))
        assert (ours[1].wait(60), spared.wait(60)) == (-9, -9)
        assert alive(other.pid)
    finally:
        for process in (*ours, other, spared):
            process.kill()
            process.communicate()


def sleeper(**environment):
    return subprocess.Popen(["sleep", "600"], env={**os.environ, **environment}, start_new_session=True)


@pytest.fixture
def ended():
    """A list of processes that are ended after the test."""
    processes = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_what_starts_while_others_are_killed_is_found(tmp_path, monkeypatch, ended):
    processes = psutil.process_iter

    def while_one_starts():
        found = list(processes())
        if len(ended) < 3:
            ended.append(sleeper(DDPNB_FOLDER=str(tmp_path)))
        return iter(found)

    ended.append(sleeper(DDPNB_FOLDER=str(tmp_path)))
    monkeypatch.setattr(psutil, "process_iter", while_one_starts)
    assert descendants.end((), str(tmp_path)) == []
    assert len(ended) == 3 and not any(alive(process.pid) for process in ended)


def test_a_process_and_its_children_are_gone_when_it_returns(ended, tmp_path):
    code = """
        import subprocess, sys, time
        for own in (False, True):
            subprocess.Popen(["sleep", "600"], env={}, start_new_session=own)
        open("ready", "w").close()
        time.sleep(600)
    """
    ended.append(subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, start_new_session=True))
    deadline = time.monotonic() + 240
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    family = descendants.family([ended[0].pid])
    assert len(family) == 3
    assert descendants.end([ended[0].pid]) == []
    assert not any(alive(process.pid) for process in family)


def test_those_that_do_not_end_are_named(monkeypatch, ended):
    """As one that is blocked in the kernel: the signal has no effect."""
    ended.append(sleeper())
    with monkeypatch.context() as stuck:
        stuck.setattr(psutil.Process, "kill", lambda _: None)
        stuck.setattr(os, "killpg", lambda *_: None)
        left = descendants.end([ended[0].pid], seconds=0)
    assert left == [ended[0].pid]
    with pytest.raises(WorldError, match=rf"processes of this job did not end: {left[0]}\."):
        descendants.check_ended(left, "job")


def test_processes_of_other_users_are_left_alone(monkeypatch, ended):
    def refuse(process):
        raise psutil.AccessDenied(process.pid)

    ended.append(sleeper())
    monkeypatch.setattr(psutil.Process, "kill", refuse)
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    assert descendants.end([ended[0].pid]) == []
