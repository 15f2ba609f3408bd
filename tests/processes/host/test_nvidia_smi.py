"""What nvidia-smi prints, from samples written by hand after the formats of several drivers: none was taken from a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpnb.processes.host.nvidia_smi import Process, parse

SAMPLES = Path(__file__).parent / "samples"
GIB = 1 << 30


def sample(name):
    return (SAMPLES / f"{name}.xml").read_text()


def test_a_volta_of_driver_470():
    driver = parse(sample("v100-470"))
    (gpu,) = driver.gpus
    assert (driver.version, driver.cuda, gpu.name) == ("470.103.01", "11.4", "Tesla V100-SXM2-16GB")
    assert (gpu.used, gpu.total, gpu.busy, gpu.celsius, gpu.slows_at) == (1102 << 20, 16160 << 20, 97, 91, 87)
    assert gpu.throttled == ("sw_power_cap", "hw_slowdown", "hw_thermal_slowdown")
    assert (gpu.corrected, gpu.uncorrected, gpu.replaced) == ((2, 9), (1, 3), 3)
    assert (gpu.pending, gpu.exhausted, gpu.mig, gpu.persistence, gpu.processes) == (True, False, False, False, ())


def test_two_hoppers_of_driver_550():
    well, broken = parse(sample("h100-550")).gpus
    assert (well.number, well.bus, well.throttled, well.uncorrected) == (0, "00000000:19:00.0", ("gpu_idle",), (0, 0))
    assert (well.replaced, well.pending, well.exhausted, well.slows_at, well.persistence) == (
        0,
        False,
        False,
        None,
        True,
    )
    assert (broken.corrected, broken.uncorrected, broken.replaced) == ((4, None), (3, 7), 3)
    assert (broken.pending, broken.exhausted, broken.celsius) == (True, True, 71)
    assert broken.processes == (Process(4194301, "C", "/home/ann/env/bin/python3", 60988 << 20),)


def test_instances_of_a_gpu():
    (gpu,) = parse(sample("a100-mig-570")).gpus
    assert (gpu.mig, gpu.instances, gpu.busy, gpu.used) == (True, 2, None, 50 << 20)


def test_a_laptop_tells_little():
    (gpu,) = parse(sample("laptop-535")).gpus
    assert (gpu.busy, gpu.uncorrected, gpu.replaced, gpu.slows_at) == (None, (None, None), None, None)
    assert (gpu.pending, gpu.mig, gpu.trouble) == (False, False, "")
    assert [one.kind for one in gpu.processes] == ["G"]


@pytest.mark.parametrize("said", ["GPU is lost", "[GPU requires reset]", "Unknown Error", "ERR!"])
def test_what_a_driver_says_in_place_of_a_value(said):
    first, second = parse(sample("h100-550").replace("<gpu_temp>32 C<", f"<gpu_temp>{said}<")).gpus
    assert first.trouble == f"gpu_temp: {said}" and first.celsius is None and second.trouble == ""


def test_a_process_may_have_any_name():
    (gpu,) = parse(sample("laptop-535").replace("/usr/lib/xorg/Xorg", "/opt/get lost")).gpus
    assert gpu.trouble == "" and gpu.processes[0].name == "/opt/get lost"


def test_an_empty_gpu():
    (gpu,) = parse("<nvidia_smi_log><gpu id='x'/></nvidia_smi_log>").gpus
    assert (gpu.name, gpu.bus, gpu.used, gpu.throttled, gpu.processes) == ("a GPU", "x", None, (), ())


@pytest.mark.parametrize(
    "text", ["", "Failed to initialize NVML", "<nvidia_smi_log>", "<!DOCTYPE a [<!ENTITY b 'c'>]><a/>"]
)
def test_what_is_no_such_output(text):
    with pytest.raises(ValueError, match="not the output of nvidia-smi"):
        parse(text)
