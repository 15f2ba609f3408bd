"""``ddpnb doctor``: a set-up that is well, and some that are not."""

from __future__ import annotations

import json
import zipfile

import pytest

from ddpnb.checkup import examine
from ddpnb.cli import main
from ddpnb.model.startup import STEPS

pytestmark = [pytest.mark.world, pytest.mark.beside]


def test_a_machine_that_is_well(tmp_path, capsys):
    told, bundle = tmp_path / "doctor.json", tmp_path / "help.zip"
    assert main(["doctor", "-n", "1", "--json", str(told), "--bundle", str(bundle)]) == 0
    shown = capsys.readouterr().out
    assert "all 11 steps of start-up were made on 1 rank" in shown and "/dev/shm" in shown
    found = json.loads(told.read_text())
    assert (found["schema"], found["outcome"], found["world_size"], found["stopped_at"]) == (1, "ok", 1, None)
    assert set(found["steps"]["0"]) == set(STEPS)
    with zipfile.ZipFile(bundle) as file:
        assert {"report.txt", "doctor.json", "rank0.log"} == set(file.namelist())
        assert "optimizer step" in file.read("report.txt").decode()


@pytest.mark.parametrize("arguments", [["--timeout", "0"], ["-n", "0"], ["--json", "/nowhere/at/all.json"]])
def test_wrong_use(arguments, capsys):
    assert main(["doctor", *arguments]) == 2
    assert capsys.readouterr().err.startswith("ddpnb: ")


@pytest.mark.parametrize(
    ("fault", "given", "step", "ranks", "code", "status"),
    [
        ("missing variable", {"name": "MASTER_ADDR"}, "environment", "rank 1 (before init", "", 1),
        ("wrong interface", {}, "process group", "rank 1 (during init", "DDP110", 1),
        ("wrong port", {}, "store", "ranks", "DDP102", 3),
        ("raise", {"op": "barrier"}, "first barrier", "rank 1 (after init", "", 1),
    ],
)
def test_where_it_stops(world, fault, given, step, ranks, code, status):
    injection = world.inject(fault, ranks=1, keep=True, **given)
    try:
        found = examine(world, 30.0 if status == 1 else 4.0)
    finally:
        injection.heal()
    assert found.headline.startswith(f"stopped at {step} on {ranks}"), str(found)
    assert found.exit_status == status and found.to_json()["stopped_at"] == step
    assert not code or code in [one.code for one in found.findings], str(found)
