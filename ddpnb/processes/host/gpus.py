"""The GPUs as the driver reports them: memory, heat, errors, and who uses them. Not yet run on GPUs."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ddpnb.model.checks import Check
from ddpnb.processes.host import topology
from ddpnb.processes.host.answers import Answer, answer
from ddpnb.processes.host.nvidia_smi import Driver, Gpu, Process, parse
from ddpnb.processes.host.owners import owner
from ddpnb.texts import printable, shortened

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
_BUS = "/sys/bus/pci/devices"
_NVIDIA, _DISPLAYS = "0x10de", ("0x0300", "0x0302")  # vendor; classes of displays and of accelerators
_NONE = ("", "-1", "NoDevFiles", "void")  # in CUDA_VISIBLE_DEVICES: none is wanted
_FAULT = re.compile(r"is lost|fallen off|requires reset", re.IGNORECASE)
_REPLACE = (
    "Stop using it (CUDA_VISIBLE_DEVICES, or exclude the node), reset it or reboot; report it if it happens again."
)
_SHOWN = 3


def checks() -> list[Check]:
    """Ask the driver, by nvidia-smi."""
    found = answer("nvidia-smi", "-q", "-x")
    driver, result = of_answer(found, present=any(map(os.path.exists, _DEVICES)), on_bus=on_bus())
    result += visible(os.environ.get("CUDA_VISIBLE_DEVICES"), len(driver.gpus) if driver is not None else 0)
    if driver is not None and len(driver.gpus) > 1:
        result += topology.checks(answer("nvidia-smi", "topo", "-m"))
    return result


def on_bus(folder: str = _BUS) -> list[str]:
    """The addresses of the GPUs of NVIDIA on the bus, whether there is a driver or not."""
    found: list[str] = []
    with suppress(OSError):
        for address in sorted(os.listdir(folder))[:4096]:
            with suppress(OSError, UnicodeDecodeError):
                vendor, kind = (
                    Path(folder, address, name).read_text("ascii").strip()[:6] for name in ("vendor", "class")
                )
                found += [address] if vendor == _NVIDIA and kind in _DISPLAYS else []
    return found


def visible(chosen: str | None, count: int) -> list[Check]:
    """What CUDA_VISIBLE_DEVICES hides of this number of GPUs: CUDA stops at the first name that it does not know."""
    if chosen is None:
        return []
    names = [name.strip() for name in chosen.split(",")]
    wrong = next(
        (n for n in names if not n.startswith(("GPU-", "MIG-")) and not (n.isdecimal() and int(n[:9]) < count)), None
    )
    said = f"CUDA_VISIBLE_DEVICES={shortened(printable(chosen), 60)}"
    if not count:
        if names[0] in _NONE:
            return []
        told, todo = f"{said} selects GPUs, and no driver shows one", "Unset it, or see above why there is no GPU."
    elif wrong is None:
        return []
    elif wrong == names[0]:
        told = f"{said} hides all {count} GPU{'s' * (count != 1)} from torch"
        todo = f"Unset it, or give numbers from 0 to {count - 1}, before the program starts."
    else:
        told = (
            f"{said}: there is no GPU {printable(wrong)[:20] or 'without a name'}, and CUDA sees only those before it"
        )
        todo = f"Give numbers from 0 to {count - 1}."
    return [Check("visible", "warning", told, "DDP208", _SECTION, todo)]


def of_answer(found: Answer, *, present: bool, on_bus: Sequence[str] = ()) -> tuple[Driver | None, list[Check]]:
    """The driver and the checks of what nvidia-smi has answered.

    Args:
        found: the answer.
        present: whether the kernel has a driver.
        on_bus: the addresses of GPUs.
    """
    if not present and on_bus:
        told = f"{len(on_bus)} of NVIDIA on the bus ({', '.join(on_bus[:_SHOWN])}), and no driver is loaded"
        todo = (
            "Install the driver, or load it (sudo modprobe nvidia); a container must be given the GPUs (docker run --gpus "
            "all). Until then, gloo runs on CPUs."
        )
        return None, [Check("GPUs", "warning", told, "DDP208", _SECTION, todo)]
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
