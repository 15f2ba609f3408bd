"""Processes that a script starts as ranks: recorded where they join a group, get a RANK, or are a launcher."""

from __future__ import annotations

import functools
import multiprocessing
import os
import subprocess
import sys

import pytest
import torch.distributed as dist
import torch.multiprocessing as mp

from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.process import own_ranks
from ddpnb.recorder.process.own_ranks import OwnRanks, joins
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.events.runs import HooksDetached
from ddpnb.recording.events.startup import RanksStarted

NOTHING = [sys.executable, "-c", ""]


def set_up(rank):
    if rank < 0:  # never here
        dist.init_process_group("gloo")


def train(rank, _scale=1.0):
    set_up(rank)


def prepare(_rank):
    return len("nothing of the kind")


class Joining(multiprocessing.get_context("spawn").Process):
    def run(self):
        set_up(-0)


@pytest.fixture
def seen(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "0")
    box = BlackBox(str(tmp_path / "rank0.box"), 0)
    hooks = OwnRanks(box)
    hooks.install()
    reader = BoxReader(box.memory)

    def events():
        assert not [event for event in reader.events() if isinstance(event, HooksDetached)]
        return [event for event in reader.events() if isinstance(event, RanksStarted)]

    yield events
    hooks.remove()


@pytest.mark.full
def test_spawn(seen, capsys):
    mp.spawn(train, args=(2.0,), nprocs=2)
    (event,) = seen()
    assert (event.how, event.count, event.joins) == ("torch.multiprocessing.spawn", 2, True)
    assert event.site.function == "test_spawn" and event.site.file == __file__
    assert capsys.readouterr().err.count("ddpnb run -- ") == 1


@pytest.mark.full
def test_spawn_of_helpers(seen, capsys):
    mp.spawn(prepare, nprocs=1)
    assert [(event.count, event.joins) for event in seen()] == [(1, False)]
    assert not capsys.readouterr().err


@pytest.mark.parametrize("method", [pytest.param("spawn", marks=pytest.mark.full), "fork"])
def test_processes(seen, method):
    context = multiprocessing.get_context(method)
    for function in (prepare, train):
        process = context.Process(target=function, args=(0,))
        process.start()
        process.join(240)
        assert process.exitcode == 0
    assert [(event.how, event.joins) for event in seen()] == [("multiprocessing.Process", True)]


@pytest.mark.full
def test_a_process_with_a_run_of_its_own(seen):
    process = Joining()
    process.start()
    process.join(240)
    assert len(seen()) == 1


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (NOTHING, {"env": {**os.environ, "RANK": "1"}}),
        (NOTHING, {"env": {**os.environ, "RANK": "0", "LOCAL_RANK": "3"}}),
        ([sys.executable, "-c", "", "torchrun"], {}),
        (f"{sys.executable} -c '' /venv/bin/torchrun --nproc-per-node 2 train.py", {"shell": True}),
    ],
    ids=["a rank", "a local rank", "torchrun", "in a shell"],
)
def test_commands(seen, command, options):
    subprocess.run(command, check=True, **options)
    subprocess.Popen(args=command, **options).wait(60)
    assert len(seen()) == 2 and all(event.joins for event in seen())


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (NOTHING, {}),
        (tuple(NOTHING), {"env": dict(os.environ)}),
        (NOTHING, {"env": {**os.environ, "RANK": "0"}}),
        (NOTHING, {"env": {}}),
        ((word for word in NOTHING), {}),
        ([word.encode() for word in NOTHING], {}),
    ],
    ids=["none", "a copy", "the same rank", "no variables", "an iterator", "bytes"],
)
def test_other_commands(seen, monkeypatch, command, options):
    monkeypatch.setenv("RANK", "0")
    options = {**options, "env": {**options["env"], "RANK": "0", "LOCAL_RANK": "0"}} if options.get("env") else options
    subprocess.run(command, check=True, **options)
    assert seen() == []


def test_a_command_that_does_not_exist(seen):
    with pytest.raises(FileNotFoundError):
        subprocess.run(["/nonexistent/program"], check=False)
    assert seen() == []


def test_helpers_of_a_rank_are_none(seen, monkeypatch):
    monkeypatch.setattr(own_ranks.dist, "is_initialized", lambda: True)
    subprocess.run(NOTHING, check=True, env={**os.environ, "RANK": "1"})
    assert seen() == []


def test_what_joins():
    assert joins(train) and joins(functools.partial(train, 0)) and joins(Joining.run)
    assert joins(lambda: set_up(0)) and joins(lambda: [set_up(rank) for rank in range(2)])
    assert not joins(prepare) and not joins(None) and not joins(print) and not joins(subprocess.run)
