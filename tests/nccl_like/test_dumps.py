"""Ranks without ddpnb on the stand-in: what is read of their flight recorders and of what their watchdog writes."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

import ddpnb
from ddpnb.ranks.flight_recorders import FlightRecorder, dumps
from tests import nccl_like
from tests.nccl_like.marks import needed

pytestmark = [needed, pytest.mark.full]

HANG = """
import os, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
dist.init_process_group("nccl_like", timeout=timedelta(seconds=float(sys.argv[1])))
total = torch.ones(4, device="npu")
for step in range(6):
    if dist.get_rank() == 1 and step == 3:
        break
    dist.all_reduce(total)
print("ahead", flush=True)
if dist.get_rank() == 0:
    total.sum().item()
time.sleep(60)
"""


@pytest.fixture
def ranks(tmp_path):
    """Starts both ranks, which hang in the fourth of six calls."""
    (tmp_path / "train.py").write_text(HANG)
    started = []

    def start(seconds):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        shared = {
            **psutil.Process().environ(),
            **nccl_like.variables(tmp_path),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe",
            "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump",
        }
        for rank in (0, 1):
            process = subprocess.Popen(
                [sys.executable, str(tmp_path / "train.py"), str(seconds)],
                env={**shared, "RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            started.append(process)
        for process in started:
            assert process.stdout.readline() == "ahead\n", process.communicate()
        return started, shared

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_the_dumps_of_ranks_that_hang_name_the_call(ranks, tmp_path):
    started, variables = ranks(600)
    time.sleep(1)
    recorders = [
        FlightRecorder(rank, variables, str(tmp_path), psutil.Process(process.pid).create_time())
        for rank, process in enumerate(started)
    ]
    found = dumps(recorders)
    assert set(found) == {0, 1}
    (finding, *_) = ddpnb.diagnose(ddpnb.load([*found.values()])).errors
    assert (finding.culprits, finding.waiting) == ((1,), (0,)), finding
    assert (finding.collective.op, finding.collective.seq, finding.collective.signature.device) == (
        "all_reduce",
        4,
        "cuda",
    )


def test_the_watchdog_of_a_rank_that_waits_too_long(ranks, tmp_path):
    (first, second), _ = ranks(1)
    assert first.wait(30) == -signal.SIGABRT and second.poll() is None
    (tmp_path / "rank0.log").write_text(first.stderr.read())
    diagnosis = ddpnb.diagnose(ddpnb.load([str(tmp_path / "rank0.log"), str(tmp_path / "dump0")]))
    (finding, *_) = diagnosis.errors
    assert diagnosis.outcome == "hang" and 0 in finding.waiting, str(diagnosis)
    assert (finding.collective.op, finding.collective.seq) == ("all_reduce", 4)
