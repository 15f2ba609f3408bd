"""Numbered checkpoints in jobs: the finding of a hang says after which one each rank stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ddpnb import load
from ddpnb.recording.checkpoints import checkpoints
from tests.recorder.events.test_checkpoints import LINE

SCRIPT = """
import ddpnb

ddpnb.checkpoint("start")  # before torch is imported
import torch, torch.distributed as dist

dist.init_process_group("gloo")
ddpnb.checkpoint("group ready")
for step in range(2):
    dist.all_reduce(torch.ones(2))
    ddpnb.checkpoint(f"step {step}")
if dist.get_rank() == 1:
    raise SystemExit  # never calls the next all_reduce
ddpnb.checkpoint("trained")
dist.all_reduce(torch.ones(2))
"""
NAMES = ["start", "group ready", "step 0", "step 1"]


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.full
@pytest.mark.parametrize("prefixed", [False, pytest.param(True, marks=pytest.mark.full)], ids=["script", "torchrun"])
def test_a_hang_between_two_checkpoints(tmp_path, script, prefixed, cli):
    torchrun = ("--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 2, script)
    command = torchrun if prefixed else ("-n", 2, "--fork", script)
    done = cli("run", "--json", "v.json", "--save", "hang.ddpnb", *command, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    finding = json.loads((tmp_path / "v.json").read_text())["findings"][0]
    assert finding["culprits"] == [1]
    assert finding["evidence"][-1] == (
        "Rank 1 passed checkpoint 4 (step 1) last, at train.py:11; rank 0 passed checkpoint 5 (trained) last, at train.py:14."
    )
    assert "checkpoint 4 (step 1)" in " ".join(done.stderr.split())
    recording = load(tmp_path / "hang.ddpnb")
    passed = checkpoints(recording)
    assert [[one.name for one in passed[rank]] for rank in (0, 1)] == [[*NAMES, "trained"], NAMES]
    lines = [line.removeprefix("[rank 0] ").removeprefix("[rank 1] ") for line in done.stdout.splitlines(keepends=True)]
    found = [LINE.fullmatch(line).groups() for line in lines if "CHECKPOINT" in line]
    assert sorted((rank, size, local, name) for _, rank, size, local, _, _, name in found) == sorted(
        (str(rank), "2", str(rank), one.name) for rank in (0, 1) for one in passed[rank]
    )


@pytest.mark.full
def test_torchrun_alone_prints_the_same_lines(tmp_path, script):
    healthy = tmp_path / "healthy.py"
    # Without the pause, torch aborts now and then at exit: gloo's threads still hold the last tensors.
    healthy.write_text(script.read_text().replace("raise SystemExit", "pass") + "import time\ntime.sleep(0.1)\n")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", healthy],
        capture_output=True, text=True, timeout=240, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [LINE.fullmatch(line).groups() for line in done.stdout.splitlines(keepends=True)]
    for rank in ("0", "1"):
        mine = [(size, local, number, name) for _, r, size, local, _, number, name in found if r == rank]
        assert mine == [("2", rank, str(number), name) for number, name in enumerate([*NAMES, "trained"], 1)]
