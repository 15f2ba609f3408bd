"""Versions of the system and of packages, and of what the ranks have loaded."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from ddpnb.recording.checks import Check
from ddpnb.recording.messages.explain import explain
from ddpnb.texts import printable, shortened

_SECTION = "versions"
_PACKAGES = re.compile(
    r"torch.*|nvidia-.*|triton|numpy|apex|flash-attn|deepspeed|accelerate|transformers|lightning|pytorch-lightning|horovod|mpi4py"
    r"|ipyparallel|ipykernel|ipywidgets|anywidget|jupyterlab|traitlets|pyzmq|psutil|xxhash|cloudpickle|py-spy|intel-.*|mkl.*"
)
_CONTAINERS = {"/.dockerenv": "Docker", "/run/.containerenv": "Podman", "/.singularity.d": "Apptainer"}
_GROUPS = re.compile(r"(docker|kubepods|containerd|lxc|libpod)")


def checks() -> list[Check]:
    """The system, and the packages of this environment."""
    inside = container(os.environ)
    libc = " ".join(platform.libc_ver()).strip()
    told = f"{platform.system()} {platform.release()}, {libc or 'libc not known'}, {platform.machine()}"
    told += f", in a container ({inside})" if inside else ", not in a container"
    details: dict[str, Any] = {
        "kernel": platform.release(),
        "libc": libc,
        "container": inside,
        "processor": processor(),
    }
    details |= {
        "release": _release(),
        "ddpnb": _version(),
        "python": platform.python_version(),
        "zone": time.strftime("%z"),
    }
    return [Check("system", "ok", told, section=_SECTION, details={**details, "packages": packages()})]


def of_ranks(software: Mapping[int, Mapping[str, Any]], driver_cuda: str = "") -> list[Check]:
    """The versions that the ranks have loaded; ``driver_cuda``: the newest CUDA of the driver."""
    if not software:
        return []
    first = dict(software[min(software)])
    told = [f"torch {first.get('torch', '?')}", f"Python {first.get('python', '?')}", f"ddpnb {_version()}"]
    told += [
        f"{title} {first[name]}"
        for name, title in (("cuda", "CUDA"), ("cudnn", "cuDNN"), ("nccl", "NCCL"))
        if first.get(name)
    ]
    backends = list(first.get("backends", ()))
    missing = [name for name in ("gloo", "nccl") if name not in backends]
    told.append(f"backends: {', '.join(backends) or 'none'}" + (f" (no {', '.join(missing)})" if missing else ""))
    if first.get("implementation"):
        told.append(f"in use: {first['implementation']}")
    found = [Check("torch", "ok", ", ".join(told), section=_SECTION, details=first)]
    built, runs = _major(str(first.get("cuda", ""))), _major(driver_cuda)
    if built and runs and built > runs:
        said = f"torch was built for CUDA {first['cuda']}, the driver runs CUDA {driver_cuda} and older"
        todo = f"Update the driver, or install torch for CUDA {driver_cuda}."
        found.append(Check("CUDA", "warning", said, "", _SECTION, todo))
    elif driver_cuda and not built:
        todo = "Install a build of torch with CUDA (pytorch.org), or use gloo."
        found.append(
            Check("CUDA", "warning", "there is a driver, but this torch was built without CUDA", "", _SECTION, todo)
        )
    elif driver_cuda and first.get("unusable"):
        said = shortened(printable(str(first["unusable"])), 200)
        explained = explain(str(first["unusable"]), "RuntimeError")
        todo = explained.remedy if explained is not None else "Check nvidia-smi, /dev/nvidia* and CUDA_VISIBLE_DEVICES."
        found.append(Check("CUDA", "warning", f"torch sees no GPU: {said}", "DDP208", _SECTION, todo))
    unknown = "; ".join(printable(str(one))[:200] for one in first.get("not_known", ()))
    if first.get("newer") or unknown:
        said = f"torch {first.get('torch', '?')}"
        said += " is newer than all that ddpnb was tested with" if first.get("newer") else ""
        said += f"; with it is not known: {unknown}" if unknown else ""
        todo = "Look for a newer ddpnb (pip install -U ddpnb)." if first.get("newer") else "Update torch to record it."
        found.append(Check("tested", "unknown", said, section=_SECTION, todo=todo))
    return found


def container(variables: Mapping[str, str]) -> str:
    """The kind of container that this process is in, as far as it shows; empty if in none."""
    for path, kind in _CONTAINERS.items():
        if os.path.exists(path):
            return kind
    if "KUBERNETES_SERVICE_HOST" in variables:
        return "Kubernetes"
    if (
        named := variables.get("container")
        or variables.get("APPTAINER_CONTAINER")
        or variables.get("SINGULARITY_CONTAINER")
    ):
        return os.path.basename(named)
    try:
        with open("/proc/1/cgroup") as file:
            found = _GROUPS.search(file.read(1 << 16))
    except OSError:
        return ""
    return found[1] if found else ""


def _version() -> str:
    """Of ddpnb, as it was installed."""
    try:
        return metadata.version("ddpnb")
    except metadata.PackageNotFoundError:
        return "not installed"


def packages() -> dict[str, str]:
    """Name -> version of the installed packages that matter."""
    found = {str(one.metadata["Name"]): one.version for one in metadata.distributions() if one.metadata["Name"]}
    return {name: version for name, version in sorted(found.items()) if _PACKAGES.fullmatch(name.lower())}


def processor() -> str:
    """The model of the processor."""
    try:
        with open("/proc/cpuinfo") as file:
            found = re.search(r"^model name\s*:\s*(.+)$", file.read(1 << 16), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor()


def _release() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return platform.platform()


def _major(version: str) -> int:
    found = re.match(r"\d+", version)
    return int(found[0]) if found else 0
