"""What nvidia-smi says of the GPUs of this machine."""

from __future__ import annotations

import time

import pytest

from ddpnb.processes import gpus

MIB = 1 << 20


def test_memory_and_utilisation_by_device():
    assert gpus.parse("0, 1024, 81559, 37\n1, 0, 81559, 0\n") == {
        0: {"device_memory": 1024 * MIB, "device_total": 81559 * MIB, "device_busy": 0.37},
        1: {"device_memory": 0, "device_total": 81559 * MIB, "device_busy": 0.0},
    }


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("0, 10, 20, [N/A]", {"device_memory": 10 * MIB, "device_total": 20 * MIB}),
        ("0, [N/A], [N/A], 50", {"device_busy": 0.5}),
        ("0, [N/A], 20, 50", {"device_busy": 0.5}),
        ("0, 10, 0, 50", {"device_busy": 0.5}),
        ("0, [N/A], [N/A], [N/A]", {}),
        ("0, 10, 20, 250", {"device_memory": 10 * MIB, "device_total": 20 * MIB, "device_busy": 1.0}),
    ],
)
def test_what_a_device_does_not_tell_is_left_out(line, told):
    assert gpus.parse(line) == {0: told}


@pytest.mark.parametrize(
    "answer",
    ["", "\n\n", "No devices were found\n", "0, 1, 2", "0, 1, 2, 3, 4", "GPU-1, 1, 2, 3", "²,1,2,3", "-1, 1, 2, 3", "\x00" * 99, "," * 5000],
)  # fmt: skip
def test_rubbish_is_nothing(answer):
    assert gpus.parse(answer) == {}


@pytest.mark.parametrize("odd", ["²", "-1", "1.5", "1e3", "٣"])
def test_numbers_that_are_none(odd):
    assert gpus.parse(f"0, {odd}, {odd}, {odd}")[0].keys() <= {"device_memory", "device_total", "device_busy"}


@pytest.mark.parametrize(
    ("visible", "number", "device"),
    [("", 0, 0), ("2,3", 0, 2), ("2, 3", 1, 3), ("2,3", 5, 5), ("GPU-8f3a,GPU-11aa", 1, 1), ("-1", 0, 0), ("3", 0, 3)],
)
def test_torch_counts_the_visible_devices_and_the_driver_all(monkeypatch, visible, number, device):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus._physical(number) == device


def test_without_the_variable_all_devices_are_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus._physical(3) == 3


@pytest.mark.parametrize("device", ["cpu", "", "cuda", "cuda:", "cuda:x", "mps:0", "cuda:-1"])
def test_what_is_no_gpu_is_not_asked_for(device):
    assert gpus.usage(device) == {}


@pytest.fixture
def smi(monkeypatch, tmp_path):
    """A program of that name that writes this, in place of the machine's own."""

    def write(script):
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpus, "_known", {})
    monkeypatch.setattr(gpus, "_asked_at", -1e9)
    return write


def test_the_answer_comes_from_a_thread_and_the_first_is_empty(smi):
    smi("echo 0, 5, 10, 20")
    assert gpus.usage("cuda:0") == {}
    deadline = time.monotonic() + 20
    while not gpus.usage("cuda:0") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gpus.usage("cuda:0") == {"device_memory": 5 * MIB, "device_total": 10 * MIB, "device_busy": 0.2}
    assert gpus.usage("cuda:1") == {}


def test_what_is_known_is_not_asked_for_again_too_soon(smi, monkeypatch, tmp_path):
    monkeypatch.setattr(gpus, "_EVERY_S", 1e6)
    smi(f"echo asked >> {tmp_path}/log; echo 0, 5, 10, 20")
    deadline = time.monotonic() + 20
    while not gpus.usage("cuda:0") and time.monotonic() < deadline:
        time.sleep(0.001)
    assert (tmp_path / "log").read_text() == "asked\n"


@pytest.mark.parametrize("script", ["exit 9", "echo NVIDIA-SMI has failed; exit 1", "printf '\\377\\376'"])
def test_one_that_fails_is_no_matter(smi, script):
    smi(script)
    gpus._ask()
    assert gpus._known == {}


def test_where_there_is_none_nothing_is_known(smi, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    gpus._ask()
    assert gpus._known == {}
