"""Every signal to every process of a world, at every moment of ``ddpnb run``."""

from __future__ import annotations

import os
import signal
import time

import pytest

pytestmark = [pytest.mark.torture, pytest.mark.timeout(300)]

#: two ranks that train until there is a file ``stop``, or stand in a hang that takes a minute to be one
LOOP = """
import os, sys, threading, time, torch, torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset

class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield 1.0

kind = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
batches = iter(DataLoader(Endless(), num_workers=1)) if kind == "loader" and rank == 1 else iter(int, 1)
next(batches)
dist.all_reduce(torch.zeros(1))
open(f"ready{rank}", "w").close()
if kind == "hang" and rank == 1:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
while True:
    next(batches)
    stop = torch.tensor([float(os.path.exists("stop"))])
    dist.all_reduce(stop)
    if stop.item():
        break
    time.sleep(0.01)
"""
STOPPED = "STOP, then CONT"
FATAL = ("INT", "TERM", "HUP", "QUIT", "KILL")


def send(pid: int, name: str) -> None:
    if name == STOPPED:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.0)
        os.kill(pid, signal.SIGCONT)
    else:
        os.kill(pid, getattr(signal, f"SIG{name}"))


def start(command, kind, *options):
    started = command("run", "-n", "2", "--patience", "60", *options, "loop.py", kind)
    (started.folder / "loop.py").write_text(LOOP)
    return started


def finish(started, who, name, moment):
    """Let what is alive end, and check how it did."""
    number = 0 if name == STOPPED else getattr(signal, f"SIG{name}")
    fatal = name != STOPPED
    if not fatal:
        (started.folder / "stop").touch()
    status, said = started.end(), started.said
    killed = who == "launcher" and name == "KILL"
    if who == "launcher" and fatal:
        assert status == (-number if killed else 128 + number), said
    elif not fatal:
        assert status == 0, said
    elif who == "worker":
        assert status not in (0, 3) and "[DDP" in said, said
    else:  # a rank; Python makes an exception of an interrupt, once it has begun
        raised = {1, 128 + number} if moment == "launching" else {1}
        assert status in (raised if name == "INT" else {128 + number}), said
        assert "rank 1" in said.lower() and (name == "INT" or "DDP311" in said), said
    started.left_nothing(swept=killed)


def case(who, name, *, cheap=False):
    return pytest.param(who, name, id=f"{who}-{name.split(',')[0]}", marks=[pytest.mark.world] if cheap else [])


@pytest.mark.parametrize(
    ("who", "name"),
    [case(who, name) for who in ("launcher", "rank1") for name in (*FATAL, STOPPED)],
)
def test_while_launching(command, who, name):
    started = start(command, "train")
    pid = started.role("rank0" if who == "launcher" else who)
    send(started.process.pid if who == "launcher" else pid, name)
    finish(started, who, name, "launching")


CHEAP = {("launcher", "TERM"), ("launcher", "KILL"), ("rank1", "KILL"), ("rank1", STOPPED)}


@pytest.mark.parametrize(
    ("who", "name"),
    [case(who, name, cheap=(who, name) in CHEAP) for who in ("launcher", "rank1") for name in (*FATAL, STOPPED)],
)
def test_in_a_healthy_run(command, who, name):
    started = start(command, "train")
    started.ready(0, 1)
    send(started.role(who), name)
    finish(started, who, name, "running")


@pytest.mark.parametrize("name", ["TERM", "KILL", STOPPED])
def test_a_worker_of_a_data_loader(command, name):
    started = start(command, "loader")
    started.ready(0, 1)
    send(started.role("worker"), name)
    finish(started, "worker", name, "running")


@pytest.mark.parametrize(("who", "name"), [case(who, name) for who in ("launcher", "rank1") for name in FATAL])
def test_in_a_hang(command, who, name):
    started = start(command, "hang")
    started.ready(0, 1)
    time.sleep(0.5)
    send(started.role(who), name)
    finish(started, who, name, "hang")


@pytest.mark.parametrize("moment", [0.4 * step for step in range(1, 13)], ids="{:.1f}".format)
@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_at_any_moment(command, name, moment):
    """While it imports, launches, runs, and has found the hang: then it may also end with its verdict's status.

    After the last of its work, as Python shuts down, the signal itself ends it.
    """
    started = start(command, "hang", "--patience", "1")
    time.sleep(moment)
    if started.process.poll() is None:
        send(started.process.pid, name)
        number = getattr(signal, f"SIG{name}")
        assert started.end() in (128 + number, -number, 3), started.said
    started.left_nothing()


@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_twice(command, name):
    """An impatient user: the second signal comes while the ranks are being stopped."""
    started = start(command, "train")
    started.ready(0, 1)
    send(started.process.pid, name)
    time.sleep(0.05)
    if started.process.poll() is None:
        send(started.process.pid, name)
    assert started.end() == 128 + getattr(signal, f"SIG{name}"), started.said
    started.left_nothing()
