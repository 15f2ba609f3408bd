"""The checks of GPUs, from what NVML says; and a process that asks it and hangs."""

from __future__ import annotations

import json
import os
import sys
import time

import pynvml
import pytest

from ddpnb.world.host import answers, gpus, nvml
from ddpnb.world.host.answers import Answer
from tests.ranks.nvml_like import GONE, install, module
from tests.world.host.test_nvml import BROKEN, HOPPER, INSTANCES, LAPTOP, VOLTA

without_driver = pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a driver")


@pytest.fixture
def checked(monkeypatch):
    """What is said of these devices, and of no answer."""

    def check(*devices, text=None, trouble="", present=True):
        install(monkeypatch, *devices)
        answer = Answer(json.dumps(nvml.driver().facts()) if text is None else text, trouble)
        found = gpus.of_answer(answer, present=present)[1]
        assert {one.section for one in found} == {"GPUs"}
        return [(one.name, one.state, one.told, one.code) for one in found]

    return check


def test_gpus_that_are_well_and_one_that_is_not(checked):
    driver, well, broken, used = checked(HOPPER, BROKEN)
    assert driver == ("driver", "ok", "driver 550.90.07, for CUDA 12.4 and older", "")
    assert well == ("GPU 0", "ok", "NVIDIA H100 80GB HBM3, 0.0 of 79.6 GiB used, 0 % busy, 32 °C", "")
    assert broken == (
        "GPU 1", "warning",
        "NVIDIA H100 80GB HBM3, 59.6 of 79.6 GiB used, 100 % busy, 71 °C; 3 uncorrected ECC errors since the driver was loaded; "
        "a row of its memory could not be replaced; a part of its memory waits to be taken out of use",
        "DDP206",
    )  # fmt: skip
    assert used == ("GPU 1 in use", "warning", "also used by python4194301 (PID 4194301): 59.6 GiB", "")


def test_heat(checked):
    (_, gpu) = checked(VOLTA)
    assert gpu[1] == "warning" and gpu[3] == "DDP206"
    assert gpu[2].endswith("its clock is throttled (hardware slowdown, too hot)") and "persistence off" in gpu[2]
    (_, gpu) = checked({**VOLTA, "CurrentClocksThrottleReasons": 0})
    assert gpu[2].endswith("its clock is throttled (too hot)")


@pytest.mark.parametrize("reason", ["GpuIdle", "SwPowerCap", "ApplicationsClocksSetting"])
def test_clocks_that_are_low_for_a_good_reason(checked, reason):
    reasons = getattr(pynvml, f"nvmlClocksThrottleReason{reason}")
    assert [state for _, state, *_ in checked({**LAPTOP, "CurrentClocksThrottleReasons": reasons})] == ["ok", "ok"]


def test_instances(checked):
    assert "MIG with 2 instances" in checked(INSTANCES)[1][2]
    assert checked({**INSTANCES, "MaxMigDeviceCount": 0})[2][:2] == ("GPU 0 MIG", "warning")


@pytest.mark.parametrize(("mode", "names"), [("PROHIBITED", ["GPU 1 mode"]), ("EXCLUSIVE_PROCESS", [])])
def test_modes(checked, mode, names):
    found = checked(HOPPER, {**BROKEN, "ComputeMode": getattr(pynvml, f"NVML_COMPUTEMODE_{mode}")})
    assert [name for name, *_ in found[4:]] == names and found[3][0] == "GPU 1 in use"


def test_a_gpu_that_is_lost(checked):
    driver, lost, well = checked(GONE, LAPTOP)
    assert (driver[1], well[1]) == ("ok", "ok")
    assert lost == ("GPU 0", "warning", "a GPU; the driver says MemoryInfo: GPU is lost", "DDP206")


@pytest.mark.parametrize(
    ("text", "trouble", "state"),
    [
        ('{"error": "Driver/library version mismatch"}', "", "unknown"),
        ('{"error": "NVML Shared Library Not Found", "absent": true}', "", "unknown"),
        ("", "NVML failed with status 1: Segmentation fault", "unknown"),
        ("{}", "", "warning"),
        ("what is this", "", "unknown"),
        ('{"gpus": [', "", "unknown"),
    ],
)
def test_no_answer(checked, text, trouble, state):
    ((name, found, told, code),) = checked(text=text, trouble=trouble)
    assert (name, found, code) == ("GPUs", state, "") and told


def test_without_a_driver_or_its_library(checked):
    assert checked(present=False) == [("GPUs", "ok", "none; gloo runs on CPUs", "")]
    ((_, _, told, _),) = checked(text='{"error": "x", "absent": true}')
    assert "libnvidia-ml.so.1" in told


@without_driver
@pytest.mark.skipif(bool(gpus.on_bus()), reason="there is a GPU")
def test_no_gpus_on_this_machine(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [one.state for one in gpus.checks()] == ["ok"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert [(one.state, one.code) for one in gpus.checks()] == [("ok", ""), ("warning", "DDP208")]


def test_gpus_without_a_driver(tmp_path):
    for address, vendor, kind in (
        ("0000:00:02.0", "0x8086", "0x030000"),
        ("0000:1b:00.0", "0x10de", "0x030200"),
        ("0000:1b:00.1", "0x10de", "0x040300"),  # its sound
    ):
        (tmp_path / address).mkdir()
        (tmp_path / address / "vendor").write_text(f"{vendor}\n")
        (tmp_path / address / "class").write_text(f"{kind}\n")
    (tmp_path / "0000:ff:00.0").mkdir()
    assert gpus.on_bus(str(tmp_path)) == ["0000:1b:00.0"] and gpus.on_bus(str(tmp_path / "none")) == []
    (found,) = gpus.of_answer(Answer(absent=True), present=False, on_bus=["0000:1b:00.0"])[1]
    assert (found.state, found.code) == ("warning", "DDP208") and "docker run --gpus all" in found.todo
    assert found.told == "1 of NVIDIA on the bus (0000:1b:00.0), and no driver is loaded"


@pytest.mark.parametrize(
    ("chosen", "count", "words"),
    [
        (None, 2, ""),
        ("0,1", 2, ""),
        ("GPU-3b1f,MIG-1", 2, ""),
        ("", 2, "hides all 2 GPUs"),
        ("-1", 1, "hides all 1 GPU from"),
        ("2,0", 2, "hides all 2 GPUs"),
        ("0,3", 2, "no GPU 3"),
        ("0,,1", 2, "no GPU without a name"),
        ("0", 0, "no driver shows one"),
        ("", 0, ""),
        ("-1", 0, ""),
        ("\x1b[31m" + "9" * 5000, 2, "hides"),
    ],
)
def test_gpus_that_a_variable_hides(chosen, count, words):
    found = gpus.visible(chosen, count)
    assert bool(found) == bool(words)
    for one in found:
        assert words in one.told and one.told.isprintable() and len(one.told) < 200 and one.todo


def test_a_driver_that_hangs(tmp_path, monkeypatch):
    hangs = "import time\ndef nvmlInit():\n    time.sleep(60)"
    monkeypatch.setenv("PYTHONPATH", module(tmp_path, hangs))
    began = time.monotonic()
    found = answers.answer(sys.executable, "-P", "-m", nvml.__name__, timeout=2, name="NVML")
    (check,) = gpus.of_answer(found, present=True)[1]
    assert time.monotonic() - began < 20
    assert (check.state, check.code, check.told) == ("warning", "DDP206", "NVML did not answer within 2 s")


def test_two_gpus_are_asked_for_in_a_process_of_its_own(tmp_path, monkeypatch):
    driver = """
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(number): return number
def nvmlDeviceGetName(device): return f"NVIDIA H100 {device}"
def nvmlDeviceGetTopologyCommonAncestor(device, other): return NVML_TOPOLOGY_SYSTEM
def nvmlSystemGetDriverVersion(): return "550.90.07"
def nvmlSystemGetCudaDriverVersion(): return 12040
"""
    monkeypatch.setenv("PYTHONPATH", module(tmp_path, driver))
    monkeypatch.setattr(gpus, "_DEVICES", (str(tmp_path),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = [(one.name, one.state, one.told) for one in gpus.checks()]
    assert found == [
        ("driver", "ok", "driver 550.90.07, for CUDA 12.4 and older"),
        ("GPU 0", "ok", "NVIDIA H100 0"),
        ("GPU 1", "ok", "NVIDIA H100 1"),
        ("links", "warning", "GPU0-GPU1 SYS: no NVLink, across CPU sockets"),
    ]
