"""A driver for the real module of NVML: its devices answer what they are told to, or raise NVML's own errors."""

from __future__ import annotations

from pathlib import Path

import pynvml

MIB = 1 << 20
GONE = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
LACKS = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
# What is asked of a device, but for UUID and what tests of usage count.
ASKED = (
    "MemoryInfo", "UtilizationRates", "Name", "PciInfo", "Temperature", "TemperatureThreshold", "TotalEccErrors", "RemappedRows",
    "RetiredPages", "RetiredPagesPendingStatus", "CurrentClocksThrottleReasons", "PersistenceMode", "MigMode", "MaxMigDeviceCount",
    "MigDeviceHandleByIndex", "ComputeMode", "ComputeRunningProcesses", "P2PStatus", "TopologyCommonAncestor", "NvLinkState",
    "NvLinkRemotePciInfo", "NvLinkRemoteDeviceType", "UUID",
)  # fmt: skip


def memory(used, total):
    return pynvml.c_nvmlMemory_t(used=used * MIB, total=total * MIB)


def busy(percent):
    return pynvml.c_nvmlUtilization_t(gpu=percent)


def place(bus):
    return pynvml.nvmlPciInfo_t(busId=bus.encode())


def process(pid, used):
    return pynvml.nvmlFriendlyObject({"pid": pid, "usedGpuMemory": used})


def install(monkeypatch, *devices, handles=None):
    """Put a driver with these devices in place of the library's; returns the names of what it will be asked.

    A device is a dictionary: what it answers by the name of the question, an error that is raised, or a function of the arguments.
    """
    queries = []

    def answer(name):
        def ask(device, *arguments):
            queries.append(name)
            found = devices[device].get(name, LACKS)
            found = found(*arguments) if callable(found) else found
            if isinstance(found, pynvml.NVMLError):
                raise found
            return found

        return ask

    def handle(number):
        if isinstance(devices[number], pynvml.NVMLError):
            raise devices[number]
        return number

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: len(devices))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", handle)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "550.90.07")
    monkeypatch.setattr(pynvml, "nvmlSystemGetCudaDriverVersion", lambda: 12040)
    monkeypatch.setattr(pynvml, "nvmlSystemGetProcessName", lambda pid: f"/home/ann/env/bin/python{pid}".encode())
    for name in ASKED:
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", answer(name))
    return queries


def module(folder, text):
    """The real module in a folder for PYTHONPATH, with some functions of its own."""
    real = Path(pynvml.__file__).read_text()
    (folder / "pynvml.py").write_text(f"{real}\n{text}\n")
    return str(folder)
