"""The GPUs as the driver reports them: memory, heat, errors, and who uses them. Not yet run on GPUs."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ddpnb.recording.checks import Check
from ddpnb.recording.names import UNDECODABLE
from ddpnb.texts import printable, shortened
from ddpnb.world.host import topology
from ddpnb.world.host.answers import Answer, answer
from ddpnb.world.host.nvml import Driver, Gpu
from ddpnb.world.host.owners import owner

_SECTION = "GPUs"
_ASKING = "ddpnb.world.host.nvml"  # the module that asks, in a process of its own
_DEVICES = ("/dev/nvidiactl", "/dev/dxg")
_BUSY = 1 << 30  # bytes that other processes use
_GIB = 1 << 30
_BUS = "/sys/bus/pci/devices"
_NVIDIA, _DISPLAYS = "0x10de", ("0x0300", "0x0302")  # vendor; classes of displays and of accelerators
_NONE = ("", "-1", "NoDevFiles", "void")  # in CUDA_VISIBLE_DEVICES: none is wanted
_REPLACE = (
    "Stop using it (CUDA_VISIBLE_DEVICES, or exclude the node), reset it or reboot; report it if it happens again."
)
_SHOWN = 3


def checks() -> list[Check]:
    """Ask the driver, where there is one."""
    present = any(map(os.path.exists, _DEVICES))
    found = answer(sys.executable, "-P", "-m", _ASKING, name="NVML") if present else Answer(absent=True)
    driver, result = of_answer(found, present=present, on_bus=on_bus())
    result += visible(os.environ.get("CUDA_VISIBLE_DEVICES"), len(driver.gpus) if driver is not None else 0)
    if driver is not None and len(driver.gpus) > 1:
        result += topology.checks(driver.links)
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
    """The driver and the checks of what it has answered.

    Args:
        found: the output of ``nvml``.
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
    if not present:
        return None, [Check("GPUs", "ok", "none; gloo runs on CPUs", section=_SECTION)]
    try:
        driver = Driver.read(json.loads(found.text)) if not found.trouble else Driver(error=found.trouble)
    except UNDECODABLE:
        driver = Driver(error="NVML printed what cannot be read")
    if driver.absent:
        told = "the kernel has a driver, but its library is not there (libnvidia-ml.so.1)"
        todo = "Install it; in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility."
        return None, [Check("GPUs", "unknown", told, section=_SECTION, todo=todo)]
    if driver.error:
        return None, [_no_answer(driver.error)]
    if not driver.gpus:
        todo = "Look at the kernel log (dmesg), and at NVIDIA_VISIBLE_DEVICES of a container."
        return None, [Check("GPUs", "warning", "the driver has found no devices", section=_SECTION, todo=todo)]
    told = f"driver {driver.version}, for CUDA {driver.cuda} and older"
    details = {"driver": driver.version, "cuda": driver.cuda}
    checks = [Check("driver", "ok", told, section=_SECTION, details=details)]
    return driver, [*checks, *(check for gpu in driver.gpus for check in of_gpu(gpu))]


def _no_answer(why: str) -> Check:
    if "did not answer" in why:
        todo = "The driver may hang: look at the kernel log (sudo dmesg -T | grep -i xid); a reboot may be needed."
        return Check("GPUs", "warning", why, "DDP206", _SECTION, todo)
    todo = "Reload the driver or reboot: after an update, the driver and its library must be the same version."
    return Check("GPUs", "unknown", f"NVML failed: {why}" if "NVML" not in why else why, "", _SECTION, todo)


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
    if any(gpu.uncorrected[:1]):
        found.append((f"{gpu.uncorrected[0]} uncorrected ECC errors since the driver was loaded", _REPLACE))
    if gpu.exhausted:
        found.append(("a row of its memory could not be replaced", "Have the GPU replaced."))
    if gpu.pending:
        found.append(
            ("a part of its memory waits to be taken out of use", f"nvidia-smi --gpu-reset -i {gpu.number}, or reboot.")
        )
    too_hot = gpu.celsius is not None and gpu.slows_at is not None and gpu.celsius >= gpu.slows_at
    if gpu.throttled or too_hot:
        why = ", ".join(gpu.throttled or ["too hot"])
        found.append(
            (f"its clock is throttled ({why})", "Check cooling and power: nvidia-smi -q -d PERFORMANCE,TEMPERATURE.")
        )
    return found


def _use(gpu: Gpu, name: str) -> list[Check]:
    """Other processes on it, and a mode that keeps ranks out."""
    found: list[Check] = []
    used = sum(one.memory or 0 for one in gpu.processes)
    if used >= _BUSY or (gpu.processes and gpu.compute_mode == "Exclusive_Process"):
        shown = ", ".join(owner(one.pid, one.name) for one in gpu.processes[:_SHOWN])
        more = f" and {len(gpu.processes) - _SHOWN} more" if len(gpu.processes) > _SHOWN else ""
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
