"""The checks of GPUs, from what nvidia-smi prints; and a command in its place that hangs."""

from __future__ import annotations

import os
import time

import pytest

from ddpnb.processes.host import answers, gpus
from ddpnb.processes.host.answers import Answer
from tests.processes.host.test_answers import command
from tests.processes.host.test_nvidia_smi import sample

without_driver = pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a driver")


def checked(text, trouble="", *, absent=False, present=True):
    found = gpus.of_answer(Answer(text, trouble, absent), present=present)[1]
    assert {one.section for one in found} == {"GPUs"}
    return [(one.name, one.state, one.told, one.code) for one in found]


def test_gpus_that_are_well_and_one_that_is_not():
    driver, well, broken, used = checked(sample("h100-550"))
    assert driver == ("driver", "ok", "driver 550.90.07, for CUDA 12.4 and older", "")
    assert well == ("GPU 0", "ok", "NVIDIA H100 80GB HBM3, 0.0 of 79.6 GiB used, 0 % busy, 32 °C", "")
    assert broken == (
        "GPU 1", "warning",
        "NVIDIA H100 80GB HBM3, 59.6 of 79.6 GiB used, 100 % busy, 71 °C; 3 uncorrected ECC errors since the driver was loaded; "
        "a row of its memory could not be replaced; a part of its memory waits to be taken out of use",
        "DDP206",
    )  # fmt: skip
    assert used == ("GPU 1 in use", "warning", "also used by python3 (PID 4194301): 59.6 GiB", "")


def test_heat():
    (_, gpu) = checked(sample("v100-470"))
    assert gpu[1] == "warning" and gpu[3] == "DDP206"
    assert gpu[2].endswith("its clock is throttled (hardware slowdown, too hot)") and "persistence off" in gpu[2]


@pytest.mark.parametrize("reason", ["gpu_idle", "sw_power_cap", "applications_clocks_setting"])
def test_clocks_that_are_low_for_a_good_reason(reason):
    text = sample("laptop-535").replace("clocks_event_reason_gpu_idle", f"clocks_event_reason_{reason}")
    assert [state for _, state, *_ in checked(text)] == ["ok", "ok"]


def test_a_display_is_no_other_user():
    assert [name for name, *_ in checked(sample("laptop-535"))] == ["driver", "GPU 0"]


def test_instances():
    assert "MIG with 2 instances" in checked(sample("a100-mig-570"))[1][2]
    none = sample("a100-mig-570").replace("mig_device>", "other>")
    assert checked(none)[2][:2] == ("GPU 0 MIG", "warning")


@pytest.mark.parametrize(("mode", "names"), [("Prohibited", ["GPU 1 mode"]), ("Exclusive_Process", [])])
def test_modes(mode, names):
    text = sample("h100-550")
    last = text.rindex("<compute_mode>Default")
    found = checked(text[:last] + text[last:].replace("<compute_mode>Default", f"<compute_mode>{mode}"))
    assert [name for name, *_ in found[4:]] == names and found[3][0] == "GPU 1 in use"


def test_a_gpu_that_is_lost():
    (found,) = checked(
        "", "nvidia-smi failed with status 15: Unable to determine the device handle for GPU0000:1B:00.0: GPU is lost"
    )
    assert found[1] == "warning" and found[3] == "DDP206"


def test_a_part_of_the_devices_has_answered():
    names = [
        (name, state)
        for name, state, *_ in checked(sample("laptop-535"), "nvidia-smi failed with status 15: GPU is lost")
    ]
    assert names == [("driver", "ok"), ("GPUs", "warning"), ("GPU 0", "ok")]


@pytest.mark.parametrize(
    ("text", "trouble", "state"),
    [
        ("", "nvidia-smi failed with status 18: Failed to initialize NVML: Driver/library version mismatch", "unknown"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "nvidia-smi failed with status 9", "unknown"),
        ("No devices were found\n", "nvidia-smi failed with status 6", "warning"),
        ("what is this", "", "unknown"),
        ("<nvidia_smi_log> cut", "", "unknown"),
    ],
)  # fmt: skip
def test_no_answer(text, trouble, state):
    ((name, found, told, code),) = checked(text, trouble)
    assert (name, found, code) == ("GPUs", state, "") and told


def test_without_nvidia_smi():
    assert checked("", absent=True, present=False) == [("GPUs", "ok", "none; gloo runs on CPUs", "")]
    assert checked("", absent=True)[0][1] == "unknown"


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
    failed = "nvidia-smi failed with status 9: NVIDIA-SMI has failed because it could not communicate with the driver."
    for answer in (Answer(absent=True), Answer(trouble=failed)):
        (found,) = gpus.of_answer(answer, present=False, on_bus=["0000:1b:00.0"])[1]
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
    tool = command(tmp_path, "exec sleep 60")
    began = time.monotonic()
    found = answers.answer(tool, timeout=0.3)
    (check,) = gpus.of_answer(found, present=True)[1]
    assert time.monotonic() - began < 20
    assert (check.state, check.code) == ("warning", "DDP206") and "did not answer within 0.3 s" in check.told


def test_two_gpus_are_asked_for_their_links(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    (tmp_path / "xml").write_text(sample("h100-550"))
    tool.write_text(
        f'#!/bin/sh\nif [ "$1" = topo ]; then printf "\\tGPU0\\tGPU1\\nGPU0\\tX\\tNV18\\nGPU1\\tNV18\\tX\\n"; else cat {tmp_path}/xml; fi\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert [(one.name, one.told) for one in gpus.checks()][-1] == ("links", "NV18 (1 pair)")
