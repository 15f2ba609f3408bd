"""A world that cannot be made or started, and one that cannot be closed in good order: nothing is left behind."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import time

import pytest

import ddpnb
from ddpnb.errors import LaunchError, UsageError, WorldError
from ddpnb.ranks import devices, interpreter
from ddpnb.ranks.engines import engines
from ddpnb.ranks.engines.early import Early
from ddpnb.recording.protocol import FOLDER
from ddpnb.world.world import World


def refused(*_args, **_more):
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.fixture
def world(place):
    """One whose ranks were never started."""
    plan = devices.plan(1, "gloo", None)
    early = Early(plan, debug=False, begin=False)
    made = World(plan, engines.Engines(early.cluster), early, fence="raise", patience=1.0, port=None, quiet=True)
    yield made
    made._ranks.closed = False
    made.close()


def test_what_was_made_is_removed_when_the_engines_cannot_be(place, monkeypatch):
    threads = set(threading.enumerate())
    monkeypatch.setattr("ddpnb.ranks.engines.early.EngineCluster", refused)
    with pytest.raises(LaunchError, match="Resource temporarily unavailable(.|\n)*ulimit -u"):
        ddpnb.launch(1, backend="gloo", quiet=True)
    assert os.listdir(place) == []
    assert set(threading.enumerate()) <= threads


@pytest.mark.parametrize("kind", ["controller", "engine"])
def test_no_process_can_be_started(place, monkeypatch, kind):
    start = interpreter.start
    monkeypatch.setattr(
        interpreter, "start", lambda command, *more: (refused if kind in command else start)(command, *more)
    )
    with pytest.raises(LaunchError, match="Resource temporarily unavailable(.|\n)*ulimit -u"):
        ddpnb.launch(1, backend="gloo", quiet=True)
    assert os.listdir(place) == []


def test_no_folder_for_the_logs_of_processes(place, monkeypatch):
    """It is made when the first one is started."""
    mkdir = os.mkdir

    def full(path, *args, **more):
        if os.path.basename(path) == "log":
            raise OSError(errno.ENOSPC, "No space left on device")
        mkdir(path, *args, **more)

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(LaunchError, match="No space left on device(.|\n)*TMPDIR"):
        ddpnb.launch(1, backend="gloo", quiet=True)
    assert os.listdir(place) == []


def test_the_working_directory_was_removed(place, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UsageError, match=r"working directory cannot be used(.|\n)*os.chdir"):
        ddpnb.launch(1, backend="gloo", quiet=True)
    assert not place.exists()


def test_close_does_not_wait_for_another_thread_without_end(world, place, monkeypatch):
    """A panel may be restarting ranks."""
    monkeypatch.setattr("ddpnb.world.ranks._LOCK_S", 0.2)
    held, done = threading.Event(), threading.Event()

    def hold():
        with world._ranks.lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(60)
        began = time.monotonic()
        world.close()
        assert time.monotonic() - began < 30
        assert world.closed and os.listdir(place) == []
        with pytest.raises(WorldError, match="closed"):  # what the other thread comes upon
            world._ranks.processes.replace({0: {}}, 1.0)
    finally:
        done.set()
        thread.join(60)


def test_a_process_that_does_not_end_is_said_and_the_folders_go(world, place, monkeypatch):
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)

    def too_long():
        raise TimeoutError

    try:
        with monkeypatch.context() as patched:
            world._ranks.processes._pids[0] = process.pid
            world._ranks.processes._environments[0] = {FOLDER: world._ranks.folders.memory}
            patched.setattr(world._ranks.processes._cluster, "_stop", too_long)
            patched.setattr(engines, "kernel_status", lambda _pid: "D")
            with pytest.raises(WorldError, match=rf"did not end: {process.pid}\."):
                world.close()
        assert os.listdir(place) == []
        assert not world._ranks.unused_port._descriptor.is_ours
    finally:
        process.kill()
        process.wait(60)
