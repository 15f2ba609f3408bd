"""Ranks that are forked from one process with torch imported: what holds for ranks in interpreters of their own holds for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

import ddpnb
from ddpnb.errors import LaunchError
from ddpnb.ranks.engines.cluster import common
from ddpnb.ranks.py_spy import py_spy_stacks
from ddpnb.recording.rank_state import RankState
from tests.conftest import alive
from tests.waiting import until

pytestmark = pytest.mark.world

LAUNCHER = """
import os, time, ddpnb
world = ddpnb.launch(2, quiet=True)
world.execute("import subprocess; _ = subprocess.Popen(['sleep', '1000'], start_new_session=True)", stream=None).wait(60)
processes = world._ranks.processes
print(processes._cluster.forks.pid, processes._cluster.controller.pid, processes.pid(0), processes.pid(1), flush=True)
time.sleep(1000)
"""
SCRIPT = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
print(int(total), sys.argv[1:], __name__, os.environ["LOCAL_RANK"], torch.get_num_threads())
dist.destroy_process_group()
"""


def facts():
    """What a rank says of its process."""
    import multiprocessing
    import random

    import numpy as np
    import torch

    return {
        "rank": (os.environ["RANK"], os.environ["LOCAL_RANK"], os.environ["WORLD_SIZE"]),
        "threads": (os.environ["OMP_NUM_THREADS"], torch.get_num_threads()),
        "session": (os.getpid(), os.getsid(0), os.getpgrp()),
        "parent": os.getppid(),
        "directory": os.getcwd(),
        "argv": (sys.argv, sys.orig_argv),
        "mark": os.environ.get("OF_THE_LAUNCHER"),
        "handler": str(signal.getsignal(signal.SIGCHLD)),
        "random": (
            random.random(),
            float(np.random.rand()),  # noqa: NPY002 (the global generator)
            torch.rand(1).item(),
            multiprocessing.current_process().authkey.hex(),
        ),
        "hash": hash("of a string"),
        "descriptors": sorted(os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in (0, 1, 2)),
    }


def waits_for_another():
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1))


def copies_itself():
    """A child in a session of its own, as a data loader that was forked."""
    pid = os.fork()
    if not pid:
        os.setsid()
        time.sleep(1000)
    return pid


@pytest.fixture(scope="module")
def forked_world():
    world = ddpnb.launch(2, backend="gloo", patience=3.0, quiet=True, fork=True)
    processes = world._ranks.processes
    with world:
        yield world
        pids = [processes.pid(0), processes.pid(1), processes._cluster.forks.pid, processes._cluster.controller.pid]
    assert not [pid for pid in pids if alive(pid)]


@pytest.fixture
def forked(forked_world):
    forked_world.release()
    if len(forked_world._ranks.alive()) < 2:
        forked_world.restart()
    return forked_world


def forks(world):
    return world._ranks.processes._cluster.forks.pid


def test_each_rank_is_as_in_an_interpreter_of_its_own(forked):
    found = forked.run(facts, stream=None).wait(60).results
    assert [one["rank"] for one in found] == [("0", "0", "2"), ("1", "1", "2")]
    for rank, one in enumerate(found):
        pid = forked._ranks.processes.pid(rank)
        assert one["session"] == (pid, pid, pid) and one["parent"] == forks(forked)
        assert one["threads"][0] == str(one["threads"][1])
        assert one["directory"] == os.getcwd()
        assert one["argv"][1][0] == sys.executable and one["argv"][1][2] == "engine"
        assert one["handler"] == str(signal.Handlers.SIG_DFL)
        environment = psutil.Process(pid).environ()  # as others see it: what a rank has left behind is found by it
        assert environment["RANK"] == str(rank) and environment["DDPNB_FOLDER"] == forked._ranks.folders.memory
    for one, other in zip(*(one["random"] for one in found), strict=True):
        assert one != other  # seeds
    assert found[0]["hash"] == found[1]["hash"]  # as the documentation says


@pytest.mark.full
def test_scripts_cells_breakpoints_and_a_hang(forked, tmp_path):
    """Without ``--full`` the ranks of the shared world are forked, and all live tests are about such ranks."""
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    run = forked.run(path, "--steps", "3", stream=None).wait(60)
    assert run.outcome == "ok", run.log(0)
    assert [run.log(rank).strip() for rank in (0, 1)] == [f"3 ['--steps', '3'] __main__ {rank} 1" for rank in (0, 1)]
    hung = forked.run(waits_for_another, stream=None).wait(60)
    assert hung.outcome == "hang" and hung.diagnosis.findings[0].culprits == (1,), hung.diagnosis
    assert py_spy_stacks(forked._ranks.processes.pid(0))
    assert not forked.release().left
    fresh = forked.run(path, fresh=True, stream=None).wait(60)
    assert (fresh.outcome, fresh.log(1).strip()) == ("ok", "3 [] __main__ 1 1")
    holding = forked.hold("all_reduce")
    held = forked.run(path, stream=None)
    assert until(lambda: all(rank.state is RankState.HELD for rank in forked.status().ranks))
    holding.remove()
    forked.resume()
    assert held.wait(60).outcome == "ok"
    cell = forked.execute("import os\nos.environ['RANK']", stream=None).wait(60)
    assert [cell.log(rank).strip() for rank in (0, 1)] == ["'0'", "'1'"]


@pytest.mark.parametrize("name", ["SIGKILL", pytest.param("SIGSEGV", marks=pytest.mark.full)])
def test_how_a_rank_ended_is_known_and_one_can_be_replaced(forked, monkeypatch, name):
    """What it has forked ends with it; a new rank gets the environment and the directory of today."""
    copies = forked.run(copies_itself, stream=None).wait(60).results
    processes, other, own = forked._ranks.processes, forked._ranks.processes.pid(0), forked._ranks.processes.pid(1)
    os.kill(own, getattr(signal, name))
    assert until(lambda: processes.exit_status(1) is not None)
    assert processes.exit_status(1) == -getattr(signal, name) and processes.exit_status(0) is None
    assert until(lambda: not alive(copies[1])) and alive(copies[0])
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("OF_THE_LAUNCHER", name)
    monkeypatch.chdir("/")
    forked.restart(1)
    assert (processes.pid(0), processes.exit_status(1)) == (other, None) and processes.pid(1) != own
    found = forked.run(facts, stream=None).wait(60).results[1]
    assert (found["mark"], found["threads"], found["directory"]) == (name, ("3", 3), "/")
    assert found["rank"] == ("1", "1", "2") and found["parent"] == forks(forked)


@pytest.mark.full
def test_the_process_that_forks_dies(forked):
    """Its ranks die with it; they are replaced from a new one."""
    processes, before = forked._ranks.processes, forks(forked)
    pids = forked.pids()
    os.killpg(before, signal.SIGKILL)
    assert until(lambda: processes.exit_status(0) is not None and processes.exit_status(1) is not None)
    assert not [pid for pid in pids if alive(pid)]
    forked.restart()
    found = forked.run(facts, stream=None).wait(60).results
    assert {one["parent"] for one in found} == {forks(forked)} and forks(forked) != before


@pytest.mark.full
def test_nothing_is_left_where_the_launcher_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER],
        env={**os.environ, "DDPNB_FORK": "1", "DDP_BACKEND": "gloo"},
        stdout=subprocess.PIPE,
        text=True,
    ) as launcher:
        try:
            pids = [int(pid) for pid in launcher.stdout.readline().split()]
            assert len(pids) == 4 and all(map(alive, pids))
        finally:
            launcher.kill()
    assert until(lambda: not any(map(alive, pids)))


@pytest.mark.full
def test_new_interpreters_where_an_import_has_started_a_thread(tmp_path, monkeypatch, capsys):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, threading, time\n"
        "if 'forks' in sys.argv:\n    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep if "PYTHONPATH" in os.environ else None)
    with ddpnb.launch(1, backend="gloo", quiet=True, fork=True) as world:
        said = capsys.readouterr().err
        assert said.count("warning: ranks cannot be forked: an import has started 1 thread") == 1
        found = world.run(facts, stream=None).wait(60).results[0]
        assert found["parent"] == os.getpid() and world._ranks.processes._cluster.forks is None


@pytest.mark.full
def test_a_launch_error_shows_the_log_of_the_process_that_forks(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'forks' in sys.argv:\n    sys.modules['ipyparallel.engine'] = None\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep if "PYTHONPATH" in os.environ else None)
    with pytest.raises(LaunchError, match=r"exited with status 1(.|\n)*ModuleNotFoundError: .*ipyparallel.engine"):
        ddpnb.launch(1, backend="gloo", quiet=True, fork=True)


def test_what_environments_have_in_common():
    assert common([{"RANK": "0", "SIZE": "2", "A": "x"}, {"RANK": "1", "SIZE": "2"}]) == {"SIZE": "2"}
