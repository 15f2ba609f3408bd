"""Checks of a machine before training: limits, memory, network, GPUs, kernel log."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
from dataclasses import dataclass
from typing import Any, Literal

import psutil

from ddpnb.processes import machine

_ANSWER_S = 10.0
_FILES, _SHM, _GIB = 4096, 1 << 30, 1 << 30
_KERNEL = {"DDP206": re.compile(r"NVRM: Xid"), "DDP706": re.compile(r"ut of memory: Killed process")}
_QUERY = "index,name,temperature.gpu,ecc.errors.uncorrected.volatile.total,clocks_throttle_reasons.active,memory.used,memory.total"
_HARMLESS = {"0x0000000000000000", "0x0000000000000001", "Not Active"}  # none, idle


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. ``code``: the finding that it can cause."""

    name: str
    state: Literal["ok", "warning", "unknown"]
    told: str
    code: str = ""


def host(ranks: int) -> list[Check]:
    """Check this machine for this number of ranks. Runs only nvidia-smi and dmesg, if available."""
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
    if shutil.which("nvidia-smi") is None:
        return [Check("GPUs", "ok", "none; gloo runs on CPUs")]
    lines = _output("nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits").splitlines()
    found = [_gpu(line) for line in lines[:64]]
    links = _output("nvidia-smi", "topo", "-m")
    slow = [line.split()[0] for line in links.splitlines() if line.startswith("GPU") and re.search(r"\bSYS\b", line)]
    if slow:
        told = f"{', '.join(slow[:16])} reach other GPUs only across CPU sockets (SYS in nvidia-smi topo -m)"
        found.append(Check("links", "warning", told, "DDP207"))
    return found or [Check("GPUs", "unknown", "no output from nvidia-smi")]


def _gpu(line: str) -> Check:
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != len(_QUERY.split(",")):
        return Check("GPU", "unknown", line[:200])
    index, name, temperature, ecc, throttle, used, total = fields
    told = f"{name}, {temperature} °C, {used} of {total} MiB used"
    if ecc.isdigit() and int(ecc):
        return Check(f"GPU {index}", "warning", f"{told}; {ecc} uncorrected ECC memory errors", "DDP206")
    if throttle and throttle not in _HARMLESS:
        return Check(f"GPU {index}", "warning", f"{told}; its clock is throttled (reasons {throttle})", "DDP206")
    return Check(f"GPU {index}", "ok", told)


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
