"""What the driver says of the GPUs of this machine, by NVML with answers in place of a driver."""

from __future__ import annotations

import os
import time

import pynvml
import pytest

from ddpnb.ranks import gpus
from tests.ranks.nvml_like import GONE, MIB, busy, install, memory

without_driver = pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a driver")


@pytest.fixture
def driver(monkeypatch):
    """A driver with these devices: what each answers, or the error that it raises."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpus, "_known", {})
    monkeypatch.setattr(gpus, "_numbers", {})
    monkeypatch.setattr(gpus, "_asked_at", -1e9)
    return lambda *devices: install(monkeypatch, *devices)


def test_memory_and_utilisation_by_device(driver):
    driver(
        {"MemoryInfo": memory(1024, 81559), "UtilizationRates": busy(37)},
        {"MemoryInfo": memory(0, 81559), "UtilizationRates": busy(0)},
    )
    gpus._ask()
    assert gpus._known == {
        0: {"device_memory": 1024 * MIB, "device_total": 81559 * MIB, "device_busy": 0.37},
        1: {"device_memory": 0, "device_total": 81559 * MIB, "device_busy": 0.0},
    }


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"MemoryInfo": memory(10, 20)}, {"device_memory": 10 * MIB, "device_total": 20 * MIB}),
        ({"UtilizationRates": busy(50)}, {"device_busy": 0.5}),
        ({"MemoryInfo": GONE, "UtilizationRates": busy(50)}, {"device_busy": 0.5}),
        ({"MemoryInfo": memory(10, 0), "UtilizationRates": busy(50)}, {"device_busy": 0.5}),
        ({"MemoryInfo": GONE, "UtilizationRates": GONE}, {}),
        ({"UtilizationRates": busy(250)}, {"device_busy": 1.0}),
    ],
)
def test_what_a_device_does_not_tell_is_left_out(driver, answers, told):
    driver(answers)
    gpus._ask()
    assert gpus._known == {0: told}


def test_a_device_that_is_lost_hides_no_other(driver):
    driver(GONE, {"MemoryInfo": memory(10, 20), "UUID": "GPU-8f3a"})
    gpus._ask()
    assert gpus._known == {1: {"device_memory": 10 * MIB, "device_total": 20 * MIB}} and gpus._numbers == {
        "GPU-8f3a": 1
    }


@pytest.mark.parametrize(
    ("visible", "number", "device"),
    [
        ("", 0, 0),
        ("", 3, 3),
        (" ", 1, 1),
        ("2,3", 0, 2),
        ("2, 3", 1, 3),
        ("2,3", 5, -1),
        ("GPU-8f3a,GPU-11aa", 1, 0),
        ("GPU-8f3a-22", 0, 2),
        ("GPU-8f3a", 0, -1),  # two of them begin so
        ("MIG-8f3a", 0, -1),
        (",1", 0, -1),
        ("-1", 0, -1),
        ("3", 0, 3),
    ],
)
def test_torch_counts_the_visible_devices_and_the_driver_all(monkeypatch, visible, number, device):
    monkeypatch.setattr(gpus, "_numbers", {"GPU-11aa-01": 0, "GPU-8f3a-21": 1, "GPU-8f3a-22": 2})
    assert gpus._physical(number, visible) == device


def test_a_rank_sees_other_devices_than_this_process(driver, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    driver(
        {"MemoryInfo": memory(5, 10), "UUID": b"GPU-11aa"},
        {"MemoryInfo": memory(7, 10), "UUID": "GPU-8f3a"},
    )
    gpus._ask()
    used = {visible: gpus.usage("cuda:0", visible).get("device_memory") for visible in (None, "", "1", "GPU-8f3a")}
    assert used == {None: 5 * MIB, "": 5 * MIB, "1": 7 * MIB, "GPU-8f3a": 7 * MIB}
    assert gpus.usage("cuda:1") == {}  # this process sees one


@pytest.mark.parametrize("device", ["cpu", "", "cuda", "cuda:", "cuda:x", "mps:0", "cuda:-1"])
def test_what_is_no_gpu_is_not_asked_for(device):
    assert gpus.usage(device) == {}


def test_the_answer_comes_from_a_thread_and_the_first_is_empty(driver):
    driver({"MemoryInfo": memory(5, 10), "UtilizationRates": busy(20)})
    assert gpus.usage("cuda:0") == {}
    deadline = time.monotonic() + 240
    while not gpus.usage("cuda:0") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gpus.usage("cuda:0") == {"device_memory": 5 * MIB, "device_total": 10 * MIB, "device_busy": 0.2}
    assert gpus.usage("cuda:1") == {}


def test_what_is_known_is_not_asked_for_again_too_soon(driver, monkeypatch):
    monkeypatch.setattr(gpus, "_EVERY_S", 1e6)
    queries = driver({"MemoryInfo": memory(5, 10)})
    deadline = time.monotonic() + 240
    while not gpus.usage("cuda:0") and time.monotonic() < deadline:
        time.sleep(0.001)
    assert queries == ["MemoryInfo", "UtilizationRates", "UUID"]


@without_driver
def test_without_a_driver_nothing_is_known(monkeypatch):
    monkeypatch.setattr(gpus, "_known", {})
    gpus._ask()
    assert gpus._known == {}
    with pytest.raises(pynvml.NVMLError):
        gpus.handles()


@pytest.mark.gpu
def test_the_driver_of_this_machine_answers():
    gpus._ask()
    assert gpus._known and all("device_total" in known for known in gpus._known.values())
