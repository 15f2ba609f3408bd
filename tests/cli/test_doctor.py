"""``ddpnb doctor``: a set-up that is well, and some that are not."""

from __future__ import annotations

import json
import os
import re
import socket
import zipfile

import psutil
import pytest
import torch

from ddpnb.cli import main
from ddpnb.recording.protocol import FORK
from ddpnb.recording.startup import STEPS
from ddpnb.world.doctor import examine

pytestmark = [pytest.mark.world]


def test_a_machine_that_is_well(tmp_path, capsys, monkeypatch, forks):
    monkeypatch.setenv(FORK, "training" if forks else "")
    told, bundle = tmp_path / "doctor.json", tmp_path / "help.zip"
    assert main(["doctor", "-n", "1", "--json", str(told), "--bundle", str(bundle)]) == 0
    shown = capsys.readouterr().out
    assert "all 11 start-up steps succeeded on 1 rank" in shown and "/dev/shm" in shown
    assert len(shown.splitlines()) < 80 and "packages: " not in shown
    found = json.loads(told.read_text())
    assert (found["schema"], found["outcome"], found["world_size"], found["stopped_at"]) == (1, "ok", 1, None)
    assert set(found["steps"]["0"]) == set(STEPS)
    host = {one["name"]: one for one in found["host"]}
    assert host["torch"]["details"]["torch"] == torch.__version__ and "gloo" in host["torch"]["told"]
    assert {one["op"] for one in found["collectives"]} == {"barrier", "all_reduce"}
    with zipfile.ZipFile(bundle) as file:
        assert {"report.txt", "doctor.json", "rank0.log"} == set(file.namelist())
        report = file.read("report.txt").decode()
    assert "optimizer step" in report and "packages: " in report


@pytest.mark.full
def test_times_of_collectives(world):
    found = examine(world._own, world._groups, world._releasing, 30.0)
    barrier, *reduces = found.collectives
    assert (barrier.op, barrier.size) == ("barrier", 0) and barrier.latency > 0
    sizes = [one.size for one in reduces]
    assert sizes[0] == 4096 and sizes == sorted({*sizes}) and sizes[-1] <= 64 << 20
    for one in reduces:
        assert [*one.seconds] == [0, 1, 2, 3] and one.bus_bandwidth == 1.5 * one.algorithm_bandwidth > 0
    shown = str(found)
    assert "all_reduce" in shown and "busbw" in shown and found.description == "4 ranks, gloo, cpu"
    html = found._repr_html_()
    assert "<details>" in html and "all_reduce" in html


@pytest.mark.full
def test_a_collective_that_fails_after_start_up(world):
    injection = world.inject("raise", ranks=1, op="barrier", seq=14)
    try:
        found = examine(world._own, world._groups, world._releasing, 30.0)
    finally:
        injection.heal()
    (check,) = [one for one in found.checks if one.section == "timings"]
    assert (check.state, found.collectives, found.exit_status) == ("warning", (), 0)
    assert "injected" in check.told and "timings\n" in str(found) and "busbw" not in str(found)


@pytest.mark.full
def test_a_bundle_holds_no_secrets_and_no_names(tmp_path, capsys, monkeypatch):
    names = {
        "LOGNAME": "quentin",
        "USER": "quentin",
        "SLURM_JOB_NODELIST": "gpu-[17-20]",
        "NCCL_DEBUG_FILE": "/home/quentin/nccl.log",
        "TORCH_NAMES": "gpu-18.cluster.example 198.51.100.3 2001:db8::77 /scratch/quentin",
        "CUDA_LAUNCH_BLOCKING": "1",  # dangerous: DDP703
    }
    secrets = {
        "MASTER_TOKEN": "open-sesame",
        "NCCL_AUTH_KEY": "hunter22",
        "TORCH_HOME": "https://ann:pa55word@models.example/hub",
        "TORCH_EXTRA": "0123456789abcdef0123456789abcdef01234567",
        "WANDB_API_KEY": "wandb-secret",
        "TORCH_PASSPHRASE": "a long horse " * 6 + "staple",  # is wrapped where it is printed
    }
    for name, value in (secrets | names).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    bundle, told = tmp_path / "help.zip", tmp_path / "doctor.json"
    assert main(["doctor", "-n", "1", "--verbose", "--bundle", str(bundle), "--json", str(told)]) == 0
    shown = capsys.readouterr().out
    assert "DDP703" in shown and "→ Unset it for training." in shown and "Fix:" not in shown and "packages: " in shown
    found = [one for one in json.loads(told.read_text())["findings"] if one["code"] == "DDP703"]
    assert [(one["severity"], one["culprits"]) for one in found] == [("warning", [0])]
    with zipfile.ZipFile(bundle) as file:
        written = "\n".join(file.read(name).decode() for name in file.namelist())
        facts = json.loads(file.read("doctor.json"))["steps"]["0"]["environment"]["facts"]
    hidden = [
        *secrets.values(),
        "staple",
        "pa55word",
        "quentin",
        "gpu-18",
        "cluster.example",
        "198.51.100.3",
        "2001:db8::77",
    ]
    assert [value for value in hidden if value in written] == []
    words = [socket.gethostname(), os.path.expanduser("~"), *addresses_of_this_machine()]
    assert [word for word in words if re.search(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", written)] == []
    assert facts["NCCL_DEBUG_FILE"] == "/home/user1/nccl.log" and facts["TORCH_NAMES"].endswith("/scratch/user1")
    assert facts["MASTER_TOKEN"] == "[masked]" and facts["TORCH_HOME"] == "https://[masked]@models.example/hub"
    assert facts["NCCL_DEBUG"] == "WARN" and facts["MASTER_ADDR"] == "127.0.0.1"


def addresses_of_this_machine():
    found = [one.address.partition("%")[0] for ones in psutil.net_if_addrs().values() for one in ones]
    return [one for one in found if one not in ("127.0.0.1", "::1", "00:00:00:00:00:00")]


@pytest.mark.parametrize("arguments", [["--timeout", "0"], ["-n", "0"], ["--json", "/nowhere/at/all.json"]])
def test_wrong_use(arguments, capsys):
    assert main(["doctor", *arguments]) == 2
    assert capsys.readouterr().err.startswith("ddpnb: ")


@pytest.mark.parametrize(
    ("fault", "given", "step", "ranks", "code", "status"),
    [
        ("missing variable", {"name": "MASTER_ADDR"}, "environment", "rank 1 (before init", "", 1),
        ("wrong interface", {}, "process group", "rank 1 (during init", "DDP110", 1),
        pytest.param("wrong port", {}, "store", "ranks", "DDP102", 3, marks=pytest.mark.full),
        ("raise", {"op": "barrier"}, "first barrier", "rank 1 (after init", "", 1),
    ],
)
def test_where_it_stops(world, fault, given, step, ranks, code, status):
    injection = world.inject(fault, ranks=1, keep=True, **given)
    try:
        found = examine(world._own, world._groups, world._releasing, 30.0 if status == 1 else 4.0)
    finally:
        injection.heal()
    assert found.headline.startswith(f"stopped at {step} on {ranks}"), str(found)
    assert found.exit_status == status and found.to_json()["stopped_at"] == step
    assert not code or code in [one.code for one in found.findings], str(found)
