"""A world of NCCL: of one rank, which one GPU is enough for, and of two."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import psutil
import pytest

import ddpnb
from ddpnb.cli import main
from ddpnb.ranks.flight_recorders import FlightRecorder, dumps
from ddpnb.recording.startup import STEPS
from tests.gpu import DEVICE, KIND, programs

pytestmark = [pytest.mark.gpu, pytest.mark.world, pytest.mark.timeout(300)]
BACKEND = "nccl" if KIND == "cuda" else "gloo"
several = pytest.mark.multigpu


@pytest.fixture(scope="module")
def single():
    with ddpnb.launch(1, backend=BACKEND, quiet=True) as world:
        yield world


@pytest.fixture
def two():
    with ddpnb.launch(2, backend=BACKEND, patience=3.0, quiet=True) as world:
        yield world


# -- one GPU


def test_start_up_in_steps(single):
    startup = single.init().run()
    assert startup.done, str(startup)
    assert startup.facts("process group")[0]["backend"] == BACKEND
    device = startup.facts("device")[0]
    assert device["device"] == DEVICE
    if KIND == "cuda":
        assert device["name"] and 0 < device["free"] <= device["memory"]
    assert startup.facts(STEPS[-1])[0]["parameters"] is not None


def test_a_training(single):
    run = single.run(programs.train, 10, None, 0.1, stream=None).wait(120)
    assert run.outcome == "ok", str(run.diagnosis)
    record = run.recording.ranks[0]
    assert record.device == DEVICE and {spec.device for spec in record.models[0].tensors} == {DEVICE}
    assert run.curves.ranks[0].loss
    assert {call.signature.device for call in record.calls if call.op == "all_reduce"} == {KIND}
    if KIND == "cuda":
        assert run.account.host_only  # how long a GPU waited is not known


def test_time_outs_are_suspended_while_ranks_are_held(single):
    holding = single.hold("all_reduce", when="step == 0")
    run = single.run(programs.sums, 2, stream=None)
    assert holding.wait(60).held == (0,)
    assert single.evaluate("minutes()").values_by_rank[0] > 1000
    single.resume()
    assert run.wait(60).outcome == "ok"
    assert single.run(programs.minutes, stream=None).wait(30).results[0] <= 30


def test_a_tensor_on_the_cpu_has_no_backend(single):
    run = single.run(programs.on_the_cpu, stream=None).wait(60)
    if KIND == "cuda":
        assert run.outcome == "crash" and "DDP203" in {one.code for one in run.diagnosis.findings}, str(run.diagnosis)


def test_the_doctor(tmp_path, capsys):
    told = tmp_path / "doctor.json"
    assert main(["doctor", "-n", "1", "--backend", BACKEND, "--json", str(told)]) == 0, capsys.readouterr().out
    found = json.loads(told.read_text())
    assert found["outcome"] == "ok" and {one["op"] for one in found["collectives"]} == {"barrier", "all_reduce"}
    if KIND == "cuda":
        names = {one["name"]: one for one in found["host"]}
        assert names["torch"]["details"]["cuda"] and any(name.startswith("GPU") for name in names)


RECORDED = """
import os, sys, time, torch, torch.distributed as dist
device = torch.device(sys.argv[1])
dist.init_process_group(sys.argv[2])
for _ in range(3):
    dist.all_reduce(torch.ones(8, device=device))
if device.type == "cuda":
    torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.read()
"""


def test_the_flight_recorder_is_asked_for_its_dump(tmp_path):
    (tmp_path / "train.py").write_text(RECORDED)
    variables = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "LOCAL_RANK": "0",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "200",
        "TORCH_FR_BUFFER_SIZE": "200",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe",
        "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    }
    command = [sys.executable, str(tmp_path / "train.py"), DEVICE, BACKEND]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**psutil.Process().environ(), **variables},
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            recorder = FlightRecorder(0, variables, str(tmp_path), psutil.Process(process.pid).create_time())
            if KIND == "cuda":
                found = dumps([recorder])
                assert set(found) == {0}
                calls = ddpnb.load(found[0]).ranks[0].calls
                assert [call.op for call in calls][-3:] == ["all_reduce"] * 3
            else:
                assert not recorder.ask()
        finally:
            process.stdin.close()
            process.wait(60)


# -- two GPUs


@several
def test_two_ranks_train_on_a_gpu_each(two):
    run = two.run(programs.train, 20, None, 0.1, stream=None).wait(120)
    assert run.outcome == "ok", str(run.diagnosis)
    kinds = [device for device, _ in run.results]
    assert kinds == (["cuda:0", "cuda:1"] if KIND == "cuda" else ["cpu"] * 2)
    assert two.compare().equal
    if KIND == "cuda":
        assert all(curves.device_memory for curves in run.curves.ranks.values())


@several
def test_a_hang_of_nccl_is_diagnosed_and_released_by_an_abort(two):
    """The host waits at the line that needs the result; the abort ends the kernel, and the processes are kept."""
    run = two.run(programs.leaves, stream=None).wait(120)
    assert run.outcome == "hang", str(run.diagnosis)
    (finding, *_) = run.diagnosis.errors
    assert finding.culprits == (1,) and finding.waiting == (0,) and finding.collective.op == "all_reduce"
    pids = two.pids()
    began = time.monotonic()
    assert two.tensor("0.weight").equal and two.compare().equal  # while the kernel of NCCL waits
    assert time.monotonic() - began < 60
    began = time.monotonic()
    released = two.release()
    assert not released.left and time.monotonic() - began < 60, str(released)
    assert two.pids() == pids and run.endings[0].how == "raised"
    again = two.run(programs.sums, 3, stream=None).wait(120)
    assert again.results == [[4.0, 12.0, 20.0]] * 2, str(again.diagnosis)


@several
def test_a_group_of_nccl_beside_a_default_group_of_gloo_is_released_too(two):
    run = two.run(beside, stream=None).wait(120)
    assert run.outcome == "hang", str(run.diagnosis)
    assert not two.release().left
    assert run.endings[0].how == "raised"


def beside():
    import torch
    import torch.distributed as dist

    here = programs.begin("gloo")
    group = dist.new_group(backend="nccl" if here.type == "cuda" else "gloo")
    total = torch.ones(4, device=here)
    dist.all_reduce(total, group=group)
    if dist.get_rank() == 0:
        dist.all_reduce(total, group=group)
        return total.sum().item()
    return None


@several
def test_collectives_are_held_and_stepped(two):
    holding = two.hold("all_reduce", when="step == 1")
    run = two.run(programs.sums, 4, stream=None)
    held = holding.wait(60)
    assert held.held == (0, 1)
    assert {one.call.seq for one in two.step().ranks} == {held[0].call.seq + 1}
    two.resume()
    assert run.wait(60).results == [[4.0, 12.0, 20.0, 28.0]] * 2


@several
def test_an_uneven_gather_passes_the_fence(two):
    run = two.run(programs.uneven_gather, stream=None).wait(60)
    if KIND == "cuda":
        assert run.outcome == "ok" and run.results[0] == [[0.0], [1.0, 1.0]], str(run.diagnosis)
