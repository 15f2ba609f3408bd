"""What NVML says, by its real module with a driver in place of that of a GPU."""

from __future__ import annotations

import json

import pynvml
import pytest

from ddpnb.world.host import nvml
from ddpnb.world.host.nvml import Driver, Process
from tests.ranks.nvml_like import GONE, MIB, busy, install, memory, place, process

VOLTA = {
    "Name": b"Tesla V100-SXM2-16GB", "MemoryInfo": memory(1102, 16160), "UtilizationRates": busy(97),
    "Temperature": 91, "TemperatureThreshold": 87, "PersistenceMode": 0, "ComputeMode": pynvml.NVML_COMPUTEMODE_DEFAULT,
    "CurrentClocksThrottleReasons": pynvml.nvmlClocksThrottleReasonSwPowerCap
    | pynvml.nvmlClocksThrottleReasonHwSlowdown | pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
    "TotalEccErrors": lambda kind, counter: [[2, 9], [1, 3]][kind][counter],
    "RetiredPages": lambda cause: [[1 << 12, 1 << 13], [1 << 14]][cause], "RetiredPagesPendingStatus": 1,
}  # fmt: skip
HOPPER = {
    "Name": "NVIDIA H100 80GB HBM3", "MemoryInfo": memory(3, 81559), "UtilizationRates": busy(0), "Temperature": 32,
    "PciInfo": place("00000000:19:00.0"), "TotalEccErrors": lambda *_: 0, "RemappedRows": (0, 0, 0, 0), "PersistenceMode": 1,
    "CurrentClocksThrottleReasons": pynvml.nvmlClocksThrottleReasonGpuIdle, "MigMode": [0, 0],
    "ComputeMode": pynvml.NVML_COMPUTEMODE_DEFAULT, "ComputeRunningProcesses": [],
}  # fmt: skip
BROKEN = {
    **HOPPER, "MemoryInfo": memory(61000, 81559), "UtilizationRates": busy(100), "Temperature": 71,
    "PciInfo": place("00000000:3B:00.0"), "RemappedRows": (1, 2, 1, 1),
    "TotalEccErrors": lambda kind, counter: [[4, None], [3, 7]][kind][counter],
    "ComputeRunningProcesses": [process(4194301, 60988 * MIB)],
}  # fmt: skip
INSTANCES = {
    "Name": "NVIDIA A100-SXM4-80GB", "MigMode": [1, 1], "MaxMigDeviceCount": 7, "MemoryInfo": memory(51200, 81920),
    "MigDeviceHandleByIndex": lambda place: f"MIG {place}" if place < 2 else pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND),
}  # fmt: skip
LAPTOP = {"Name": "NVIDIA GeForce RTX 4060", "MemoryInfo": memory(300, 8188), "CurrentClocksThrottleReasons": 1}


def asked(monkeypatch, *devices):
    """As the doctor gets it: through JSON."""
    install(monkeypatch, *devices)
    found = nvml.driver()
    assert Driver.read(json.loads(json.dumps(found.facts()))) == found
    return found


def linked(one, *others, far=pynvml.NVML_TOPOLOGY_SYSTEM, switch=False, links=18):
    """A device with so many links to each of the others, by their places on the bus; to a switch: to all of them."""
    there = [bus for bus in others for _ in range(links)]
    kind = pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH if switch else pynvml.NVML_NVLINK_DEVICE_TYPE_GPU
    known = ["0000:00:00.0", "0000:01:00.0", "0000:02:00.0"]
    return {
        "PciInfo": place(one),
        "P2PStatus": lambda other, _: pynvml.NVML_P2P_STATUS_OK if switch or known[other] in others else 5,
        "TopologyCommonAncestor": far,
        "NvLinkState": lambda link: int(link < (links if switch else len(there))),
        "NvLinkRemoteDeviceType": kind,
        "NvLinkRemotePciInfo": lambda link: place("switch" if switch else there[link]),
    }


def test_a_gpu_with_retired_pages(monkeypatch):
    driver = asked(monkeypatch, VOLTA)
    (gpu,) = driver.gpus
    assert (driver.version, driver.cuda, gpu.name) == ("550.90.07", "12.4", "Tesla V100-SXM2-16GB")
    assert (gpu.used, gpu.total, gpu.busy, gpu.celsius, gpu.slows_at) == (1102 << 20, 16160 << 20, 97, 91, 87)
    assert gpu.throttled == ("hardware slowdown", "too hot")
    assert (gpu.corrected, gpu.uncorrected, gpu.replaced) == ((2, 9), (1, 3), 3)
    assert (gpu.pending, gpu.exhausted, gpu.mig, gpu.persistence, gpu.processes) == (True, False, False, False, ())


def test_one_that_is_well_and_one_with_remapped_rows(monkeypatch):
    well, broken = asked(monkeypatch, HOPPER, BROKEN).gpus
    assert (well.number, well.bus, well.throttled, well.uncorrected) == (0, "00000000:19:00.0", (), (0, 0))
    assert (well.replaced, well.pending, well.exhausted, well.slows_at, well.persistence) == (
        0,
        False,
        False,
        None,
        True,
    )
    assert (broken.corrected, broken.uncorrected, broken.replaced) == ((4, None), (3, 7), 3)
    assert (broken.pending, broken.exhausted, broken.celsius, broken.compute_mode) == (True, True, 71, "Default")
    assert broken.processes == (Process(pid=4194301, name="/home/ann/env/bin/python4194301", memory=60988 << 20),)


def test_instances_of_a_gpu(monkeypatch):
    (gpu,) = asked(monkeypatch, INSTANCES).gpus
    assert (gpu.mig, gpu.instances, gpu.busy, gpu.used) == (True, 2, None, 50 << 30)


def test_a_laptop_tells_little(monkeypatch):
    (gpu,) = asked(monkeypatch, LAPTOP).gpus
    assert (gpu.busy, gpu.uncorrected, gpu.replaced, gpu.slows_at) == (None, (None, None), None, None)
    assert (gpu.pending, gpu.mig, gpu.trouble, gpu.processes) == (False, False, "", ())


def test_an_older_library_answers_what_it_knows(monkeypatch):
    (gpu,) = asked(monkeypatch, {}).gpus
    assert (gpu.name, gpu.used, gpu.throttled, gpu.processes) == ("a GPU", None, (), ())


@pytest.mark.parametrize(
    ("code", "said"), [("GPU_IS_LOST", "GPU is lost"), ("RESET_REQUIRED", "requires"), ("UNKNOWN", "Unknown Error")]
)
def test_what_a_driver_says_in_place_of_a_value(monkeypatch, code, said):
    error = pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{code}"))
    first, second = asked(monkeypatch, {**HOPPER, "Temperature": error}, HOPPER).gpus
    assert first.trouble.startswith("Temperature: ") and said in first.trouble
    assert first.celsius is None and second.trouble == ""


def test_a_gpu_that_is_lost_hides_no_other(monkeypatch):
    driver = asked(monkeypatch, HOPPER, GONE, HOPPER)
    assert [gpu.trouble for gpu in driver.gpus] == ["", "MemoryInfo: GPU is lost", ""]
    assert [*driver.links] == ["GPU0", "GPU2"]


@pytest.mark.parametrize(
    ("code", "absent"), [("LIBRARY_NOT_FOUND", True), ("DRIVER_NOT_LOADED", False), ("LIB_RM_VERSION_MISMATCH", False)]
)
def test_no_driver(monkeypatch, code, absent):
    def fails():
        raise pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{code}"))

    install(monkeypatch)
    monkeypatch.setattr(pynvml, "nvmlInit", fails)
    found = nvml.driver()
    assert found.error and found.absent is absent and found.gpus == ()


def test_a_switch(monkeypatch):
    names = ["0000:00:00.0", "0000:01:00.0", "0000:02:00.0"]
    links = asked(monkeypatch, *(linked(one, switch=True) for one in names)).links
    assert links["GPU1"] == {"GPU0": "NV18", "GPU2": "NV18"}


def test_links_lead_to_some_and_the_bus_to_others(monkeypatch):
    first, second, third = "0000:00:00.0", "0000:01:00.0", "0000:02:00.0"
    links = asked(monkeypatch, linked(first, second, links=2), linked(second, first, links=2), linked(third)).links
    assert links["GPU0"] == {"GPU1": "NV2", "GPU2": "SYS"} and links["GPU2"] == {"GPU0": "SYS", "GPU1": "SYS"}


def test_where_nothing_tells_how_far_two_are_apart(monkeypatch):
    assert asked(monkeypatch, HOPPER, HOPPER).links == {"GPU0": {"GPU1": ""}, "GPU1": {"GPU0": ""}}
