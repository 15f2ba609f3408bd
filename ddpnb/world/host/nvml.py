"""What the driver says of the GPUs of this machine, by NVML. Not yet run on GPUs.

The doctor runs this module in a process of its own, which prints the answers as JSON: where the driver hangs, only that process does.
A value that a device does not tell is None.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import permutations
from typing import Any

import pynvml
from pynvml import NVMLError

from ddpnb.ranks.gpus import answer_of, handles, text_of
from ddpnb.recording.events.base import Facts, record

_MOST = 64  # GPUs, and processes of one
_BROKEN = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_UNKNOWN)
_SLOWED = {
    "hardware slowdown": pynvml.nvmlClocksThrottleReasonHwSlowdown,
    "too hot": pynvml.nvmlClocksThrottleReasonHwThermalSlowdown | pynvml.nvmlClocksThrottleReasonSwThermalSlowdown,
    "too little power": pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
}
_MODES = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "Default",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "Exclusive_Process",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "Prohibited",
}
#: how far two GPUs are apart, in the words of ``nvidia-smi topo -m``
_LINKS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "PIX",
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}


@record
class Process(Facts):
    """A process that computes on a GPU; ``memory`` in bytes."""

    pid: int = 0
    name: str = ""
    memory: int | None = None


@record
class Gpu(Facts):
    """One device. Memory in bytes, ``busy`` in percent.

    ``throttled``: why its clock is below what was asked for. ``corrected``, ``uncorrected``: ECC errors since the driver
    was loaded, and in the life of the device. ``replaced``: rows remapped or pages retired; ``pending``: this waits for a
    reset; ``exhausted``: no spare rows are left. ``trouble``: what the driver says in place of values.
    """

    number: int = 0
    name: str = "a GPU"
    bus: str = ""
    used: int | None = None
    total: int | None = None
    busy: float | None = None
    celsius: float | None = None
    slows_at: float | None = None
    throttled: tuple[str, ...] = ()
    corrected: tuple[int | None, ...] = (None, None)
    uncorrected: tuple[int | None, ...] = (None, None)
    replaced: int | None = None
    pending: bool = False
    exhausted: bool = False
    mig: bool = False
    instances: int = 0
    compute_mode: str = ""
    persistence: bool | None = None
    processes: tuple[Process, ...] = ()
    trouble: str = ""


@record
class Driver(Facts):
    """The driver, the newest CUDA that it runs, and its devices.

    ``links``: GPU -> other GPU -> ``NV12``, ``PIX``, ``PXB``, ``PHB``, ``NODE``, ``SYS``, or empty where it is not known. ``error``: why the
    driver says nothing; ``absent``: there is no library that could ask it.
    """

    version: str = ""
    cuda: str = ""
    gpus: tuple[Gpu, ...] = ()
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    error: str = ""
    absent: bool = False


def driver() -> Driver:
    """Ask the driver."""
    try:
        devices = dict(enumerate(handles()[:_MOST]))
    except NVMLError as error:
        return Driver(error=str(error), absent=_code(error) == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    cuda = answer_of(pynvml.nvmlSystemGetCudaDriverVersion) or 0
    gpus = tuple(_gpu(number, device) for number, device in devices.items())
    version = text_of(answer_of(pynvml.nvmlSystemGetDriverVersion))
    return Driver(version=version, cuda=f"{cuda // 1000}.{cuda % 1000 // 10}", gpus=gpus, links=_links(devices, gpus))


class _Device:
    """Asks one device; ``trouble``: what it says in place of the first value that it cannot give."""

    def __init__(self, handle: Any) -> None:
        self._handle, self.trouble = handle, ""

    def get(self, what: str, *arguments: Any) -> Any:
        try:
            if isinstance(self._handle, NVMLError):
                raise self._handle
            return _ask(what, self._handle, *arguments)
        except NVMLError as error:
            if _code(error) in _BROKEN:
                self.trouble = self.trouble or f"{what}: {error}"
            return None

    def errors(self, kind: int) -> tuple[int | None, int | None]:
        since, always = (
            self.get("TotalEccErrors", kind, counter)
            for counter in (pynvml.NVML_VOLATILE_ECC, pynvml.NVML_AGGREGATE_ECC)
        )
        return since, always


def _code(error: NVMLError) -> int:
    return error.value  # pyright: ignore[reportAttributeAccessIssue]


def _ask(what: str, *arguments: Any) -> Any:
    return getattr(pynvml, f"nvmlDeviceGet{what}")(*arguments)


def _gpu(number: int, handle: Any) -> Gpu:
    device = _Device(handle)
    memory, rates, place = device.get("MemoryInfo"), device.get("UtilizationRates"), device.get("PciInfo")
    # Before Ampere pages are retired, since then rows are remapped: (corrected, uncorrected, pending, failed).
    rows = device.get("RemappedRows") or ()
    pages = [device.get("RetiredPages", cause) for cause in range(pynvml.NVML_PAGE_RETIREMENT_CAUSE_COUNT)]
    counts = [*rows[:2], *(len(those) for those in pages if those is not None)]
    reasons = device.get("CurrentClocksThrottleReasons") or 0
    persistence, (mig, *_) = device.get("PersistenceMode"), device.get("MigMode") or (0,)
    instances = range(device.get("MaxMigDeviceCount") or 0) if mig else ()
    return Gpu(
        number=number,
        name=text_of(device.get("Name")) or "a GPU",
        bus=text_of(place.busId) if place is not None else "",
        used=memory.used if memory is not None else None,
        total=memory.total if memory is not None else None,
        busy=rates.gpu if rates is not None else None,
        celsius=device.get("Temperature", pynvml.NVML_TEMPERATURE_GPU),
        slows_at=device.get("TemperatureThreshold", pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        throttled=tuple(why for why, bits in _SLOWED.items() if reasons & bits),
        corrected=device.errors(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        uncorrected=device.errors(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        replaced=sum(counts) if counts else None,
        pending=any(rows[2:3]) or bool(device.get("RetiredPagesPendingStatus")),
        exhausted=any(rows[3:]),
        mig=bool(mig),
        instances=sum(device.get("MigDeviceHandleByIndex", place) is not None for place in instances),
        compute_mode=_MODES.get(device.get("ComputeMode"), ""),
        persistence=None if persistence is None else bool(persistence),
        processes=tuple(_processes(device.get("ComputeRunningProcesses") or ())),
        trouble=device.trouble,
    )


def _processes(running: Sequence[Any]) -> Iterator[Process]:
    for one in running[:_MOST]:
        yield Process(
            pid=one.pid, name=text_of(answer_of(pynvml.nvmlSystemGetProcessName, one.pid)), memory=one.usedGpuMemory
        )


def _links(devices: Mapping[int, Any], gpus: Sequence[Gpu]) -> dict[str, dict[str, str]]:
    answering = [gpu for gpu in gpus if not isinstance(devices[gpu.number], NVMLError)]
    found: dict[str, dict[str, str]] = {f"GPU{gpu.number}": {} for gpu in answering}
    for one, other in permutations(answering, 2):
        pair = devices[one.number], devices[other.number]
        far = answer_of(_ask, "TopologyCommonAncestor", *pair)
        direct = answer_of(_ask, "P2PStatus", *pair, pynvml.NVML_P2P_CAPS_INDEX_NVLINK) == pynvml.NVML_P2P_STATUS_OK
        count = _nvlinks(pair[0], other.bus) if direct else 0
        found[f"GPU{one.number}"][f"GPU{other.number}"] = f"NV{count}" if count else _LINKS.get(far, "")
    return found


def _nvlinks(device: Any, bus: str) -> int:
    """How many links of NVLink lead to the device there, or to a switch."""
    count = 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        if answer_of(_ask, "NvLinkState", device, link):
            there = answer_of(_ask, "NvLinkRemotePciInfo", device, link)
            switched = answer_of(_ask, "NvLinkRemoteDeviceType", device, link) == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
            count += switched or (there is not None and text_of(there.busId) == bus)
    return count


if __name__ == "__main__":
    print(json.dumps(driver().facts()))
