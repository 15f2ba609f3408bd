"""The GPUs as the driver reports them: memory, heat, errors, and who uses them. Not yet run on GPUs."""

from __future__ import annotations

import dataclasses
import os
import re

from ddpnb.model.checks import Check
from ddpnb.processes.host import topology
from ddpnb.processes.host.answers import Answer, answer
from ddpnb.processes.host.nvidia_smi import Driver, Gpu, Process, parse
from ddpnb.processes.host.owners import owner

_SECTION = "GPUs"
_DEVICES = ("/dev/nvidiactl", "/dev/dxg")
_SLOWED = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "too hot",
    "sw_thermal_slowdown": "too hot",
    "hw_power_brake_slowdown": "too little power",
}
_BUSY = 1 << 30  # bytes that other processes use
_GIB = 1 << 30
_FAULT = re.compile(r"is lost|fallen off|requires reset", re.IGNORECASE)
_REPLACE = (
    "Stop using it (CUDA_VISIBLE_DEVICES, or exclude the node), reset it or reboot; report it if it happens again."
)
_SHOWN = 3


def checks() -> list[Check]:
    """Ask the driver, by nvidia-smi."""
    found = answer("nvidia-smi", "-q", "-x")
    driver, result = of_answer(found, present=any(map(os.path.exists, _DEVICES)))
    if driver is not None and len(driver.gpus) > 1:
        result += topology.checks(answer("nvidia-smi", "topo", "-m"))
    return result


def of_answer(found: Answer, *, present: bool) -> tuple[Driver | None, list[Check]]:
    """The driver and the checks of what nvidia-smi has answered; ``present``: whether the kernel has a driver."""
    if found.absent and not present:
        return None, [Check("GPUs", "ok", "none; gloo runs on CPUs", section=_SECTION)]
    if found.absent:
        told = "the kernel has a driver, but there is no nvidia-smi"
        todo = "Install it; in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility."
        return None, [Check("GPUs", "unknown", told, section=_SECTION, todo=todo)]
    if "No devices were found" in found.text:
        todo = "Look at the kernel log (dmesg), and at NVIDIA_VISIBLE_DEVICES of a container."
        return None, [Check("GPUs", "warning", "the driver has found no devices", section=_SECTION, todo=todo)]
    try:
        driver = parse(found.text) if "<nvidia_smi_log" in found.text else None
    except ValueError:
        driver = None
    if driver is None:
        return None, [_no_answer(found)]
    told = f"driver {driver.version}, for CUDA {driver.cuda} and older"
    details = {"driver": driver.version, "cuda": driver.cuda}
    checks = [Check("driver", "ok", told, section=_SECTION, details=details)]
    if found.trouble:  # a part of the devices has answered
        checks.append(_no_answer(found))
    return driver, [*checks, *(check for gpu in driver.gpus for check in of_gpu(gpu))]


def _no_answer(found: Answer) -> Check:
    why = found.trouble or "nvidia-smi printed what cannot be read"
    if _FAULT.search(found.text + found.trouble):
        return Check("GPUs", "warning", why, "DDP206", _SECTION, _REPLACE)
    hangs = "did not answer" in why
    todo = "The driver may hang: look at the kernel log (sudo dmesg -T | grep -i xid); a reboot may be needed."
    if not hangs:
        todo = "Reload the driver or reboot: after an update, the driver and its library must be the same version."
    return Check("GPUs", "warning" if hangs else "unknown", why, "DDP206" if hangs else "", _SECTION, todo)


def of_gpu(gpu: Gpu) -> list[Check]:
    """A line for the device, and one for each thing that is wrong with it."""
    name = f"GPU {gpu.number}"
    parts = [gpu.name]
    parts += [f"{gpu.used / _GIB:.1f} of {gpu.total / _GIB:.1f} GiB used"] if gpu.used is not None and gpu.total else []
    parts += [f"{gpu.busy:.0f} % busy"] if gpu.busy is not None else []
    parts += [f"{gpu.celsius:.0f} °C"] if gpu.celsius is not None else []
    parts += [f"MIG with {gpu.instances} instance{'s' * (gpu.instances != 1)}"] if gpu.mig else []
    parts += ["persistence off"] if gpu.persistence is False else []
    problems = _faults(gpu)
    found = [
        Check(
            name, "warning" if problems else "ok", "; ".join([", ".join(parts), *(what for what, _ in problems)]),
            "DDP206" if problems else "", _SECTION, problems[0][1] if problems else "", dataclasses.asdict(gpu),
        )
    ]  # fmt: skip
    return [*found, *_use(gpu, name)]


def _faults(gpu: Gpu) -> list[tuple[str, str]]:
    """What is wrong with the device, and what to do about it."""
    found: list[tuple[str, str]] = []
    if gpu.trouble:
        found.append((f"the driver says {gpu.trouble}", _REPLACE))
    if gpu.uncorrected[0]:
        found.append((f"{gpu.uncorrected[0]} uncorrected ECC errors since the driver was loaded", _REPLACE))
    if gpu.exhausted:
        found.append(("a row of its memory could not be replaced", "Have the GPU replaced."))
    if gpu.pending:
        found.append(
            ("a part of its memory waits to be taken out of use", f"nvidia-smi --gpu-reset -i {gpu.number}, or reboot.")
        )
    slowed = list(dict.fromkeys(_SLOWED[reason] for reason in gpu.throttled if reason in _SLOWED))
    too_hot = gpu.celsius is not None and gpu.slows_at is not None and gpu.celsius >= gpu.slows_at
    if slowed or too_hot:
        why = ", ".join(slowed or ["too hot"])
        found.append(
            (f"its clock is throttled ({why})", "Check cooling and power: nvidia-smi -q -d PERFORMANCE,TEMPERATURE.")
        )
    return found


def _use(gpu: Gpu, name: str) -> list[Check]:
    """Other processes on it, and a mode that keeps ranks out."""
    found: list[Check] = []
    computing = [one for one in gpu.processes if "C" in one.kind]
    used = sum(one.memory or 0 for one in computing)
    if used >= _BUSY or (computing and gpu.compute_mode == "Exclusive_Process"):
        shown = ", ".join(map(_owner, computing[:_SHOWN]))
        more = f" and {len(computing) - _SHOWN} more" if len(computing) > _SHOWN else ""
        told = f"also used by {shown}{more}: {used / _GIB:.1f} GiB"
        todo = "End them if they are left over, or choose other GPUs with CUDA_VISIBLE_DEVICES."
        found.append(Check(f"{name} in use", "warning", told, "", _SECTION, todo))
    if gpu.compute_mode == "Prohibited":
        told, todo = "its compute mode lets no process use it", f"sudo nvidia-smi -i {gpu.number} -c DEFAULT"
        found.append(Check(f"{name} mode", "warning", told, "", _SECTION, todo))
    if gpu.mig and not gpu.instances:
        told = "MIG is on, but it has no instances: CUDA sees no device"
        todo = f"sudo nvidia-smi -i {gpu.number} -mig 0, or create instances (nvidia-smi mig -cgi)."
        found.append(Check(f"{name} MIG", "warning", told, "", _SECTION, todo))
    return found


def _owner(process: Process) -> str:
    return owner(process.pid, process.name)
