"""Checks of a machine before training: limits, memory, network, GPUs, kernel log."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
from dataclasses import dataclass
from typing import Any, Literal

import psutil

from ddpnb.processes import gpus, machine

_ANSWER_S = 10.0
_FILES, _SHM, _GIB = 4096, 1 << 30, 1 << 30
_KERNEL = {"DDP206": re.compile(r"NVRM: Xid"), "DDP706": re.compile(r"ut of memory: Killed process")}


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. ``code``: the finding that it can cause."""

    name: str
    state: Literal["ok", "warning", "unknown"]
    told: str
    code: str = ""


def host(ranks: int) -> list[Check]:
    """Check this machine for this number of ranks. Runs only dmesg, if available."""
    facts = machine.facts()
    return [
        _cores(facts, ranks),
        _memory(facts),
        _shared_memory(facts),
        _files(),
        _loopback(),
        _own_name(),
        *_gpus(),
        *_kernel_log(),
    ]


def _cores(facts: dict[str, Any], ranks: int) -> Check:
    cores = float(facts.get("cores") or 0)
    told = f"{cores:g} cores for {ranks} ranks"
    threads = os.environ.get("OMP_NUM_THREADS", "")
    many = threads.isdigit() and int(threads) * ranks >= 4 * max(cores, 1)
    if many:
        return Check("cores", "warning", f"{told}, with OMP_NUM_THREADS={threads} each", "DDP704")
    return Check("cores", "ok", told)


def _memory(facts: dict[str, Any]) -> Check:
    if "memory_available" not in facts:
        return Check("memory", "unknown", "not available on this system")
    free, total = facts["memory_available"], facts["memory_total"]
    told = f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB available"
    kills = facts.get("oom_kills")
    if kills:
        return Check("memory", "warning", f"{told}; the OOM killer has killed {kills} processes here", "DDP706")
    return Check("memory", "ok" if free > _GIB else "warning", told, "" if free > _GIB else "DDP706")


def _shared_memory(facts: dict[str, Any]) -> Check:
    if "shm_total" not in facts:
        return Check("/dev/shm", "unknown", "not present")
    told = f"{facts['shm_free'] / _GIB:.2f} of {facts['shm_total'] / _GIB:.2f} GiB free"
    low = facts["shm_free"] < _SHM
    return Check("/dev/shm", "warning" if low else "ok", told, "DDP506" if low else "")


def _files() -> Check:
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    except (ImportError, OSError):
        return Check("open files", "unknown", "not available on this system")
    low = soft < _FILES
    return Check(
        "open files",
        "warning" if low else "ok",
        f"soft limit {soft} per process (hard limit {hard})",
        "DDP705" if low else "",
    )


def _loopback() -> Check:
    with contextlib.suppress(OSError), socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with socket.create_connection(listening.getsockname(), timeout=2):
            return Check("loopback", "ok", "connections to 127.0.0.1 work")
    return Check("loopback", "warning", "cannot connect to 127.0.0.1: a firewall, or no network at all", "DDP104")


def _own_name() -> Check:
    name = socket.gethostname()
    try:
        addresses = sorted({str(one[4][0]) for one in socket.getaddrinfo(name, None)})
    except OSError as error:
        return Check("host name", "warning", f"{name} does not resolve ({error}); gloo and NCCL use it first", "DDP110")
    mine = {str(one.address).split("%")[0] for ones in psutil.net_if_addrs().values() for one in ones}
    known = set(addresses) & mine or all(address.startswith("127.") for address in addresses)
    told = f"{name} resolves to {', '.join(addresses[:4])}"
    if known:
        return Check("host name", "ok", told)
    return Check("host name", "warning", f"{told}: not an address of this machine", "DDP110")


def _gpus() -> list[Check]:
    """Not yet run on a machine with GPUs."""
    from pynvml import NVML_ERROR_LIBRARY_NOT_FOUND, NVMLError

    none = [Check("GPUs", "ok", "none; gloo runs on CPUs")]
    try:
        devices = gpus.handles()[:64]
    except NVMLError as error:
        absent = error.args == (NVML_ERROR_LIBRARY_NOT_FOUND,)
        return none if absent else [Check("GPUs", "unknown", f"the driver does not answer: {error}")]
    found: list[Check] = []
    for number, device in enumerate(devices):
        problem = gpus.problem(device)
        told = "; ".join(filter(None, (gpus.description(device), problem)))
        found.append(Check(f"GPU {number}", "warning" if problem else "ok", told, "DDP206" if problem else ""))
    slow = gpus.across_sockets(devices)
    if slow:
        names = ", ".join(f"GPU{number}" for number in slow[:16])
        told = f"{names} reach other GPUs only across CPU sockets (SYS in nvidia-smi topo -m)"
        found.append(Check("links", "warning", told, "DDP207"))
    return found or none


def _kernel_log() -> list[Check]:
    """Not every user may read it."""
    found: dict[str, list[str]] = {}
    for line in _output("dmesg").splitlines():
        for code, pattern in _KERNEL.items():
            if pattern.search(line):
                found.setdefault(code, []).append(line)
    return [
        Check("kernel log", "warning", f"{len(lines)} matching lines, the last: {lines[-1][:120]}", code)
        for code, lines in found.items()
    ]


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S, check=False).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
