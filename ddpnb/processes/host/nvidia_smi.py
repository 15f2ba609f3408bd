"""What ``nvidia-smi -q -x`` prints, of drivers from 470 to 580. Read from samples written by hand; not yet run on GPUs.

Newer drivers rename elements, so a value is looked for under each of its names; one that is not there, or ``N/A``, is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

_NUMBER = re.compile(r"^-?\d+(?:\.\d+)?")
_LOST = re.compile(r"\blost\b|requires reset|Unknown Error|fallen off|^ERR!", re.IGNORECASE)
_MIB = 1 << 20
_MOST = 64  # GPUs, and processes of one


@dataclass(frozen=True, slots=True)
class Process:
    """A process that uses a GPU. ``kind``: C computes, G draws; ``memory`` in bytes."""

    pid: int
    kind: str
    name: str
    memory: int | None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device. Memory in bytes, ``busy`` in percent; None where the device does not tell.

    ``throttled``: why its clock is below what was asked for. ``corrected``, ``uncorrected``: ECC errors since the driver
    was loaded, and in the life of the device. ``replaced``: rows remapped or pages retired; ``pending``: this waits for a
    reset; ``exhausted``: no spare rows are left. ``trouble``: what the driver says in place of values.
    """

    number: int
    name: str
    bus: str
    used: int | None
    total: int | None
    busy: float | None
    celsius: float | None
    slows_at: float | None
    throttled: tuple[str, ...]
    corrected: tuple[int | None, int | None]
    uncorrected: tuple[int | None, int | None]
    replaced: int | None
    pending: bool
    exhausted: bool
    mig: bool
    instances: int
    compute_mode: str
    persistence: bool | None
    processes: tuple[Process, ...]
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver, the newest CUDA that it runs, and its devices."""

    version: str
    cuda: str
    gpus: tuple[Gpu, ...]


def parse(text: str) -> Driver:
    """Read the output.

    Raises:
        ValueError: it is not such an output.
    """
    if "<!ENTITY" in text:
        raise ValueError("not the output of nvidia-smi")
    try:
        log = ET.fromstring(text)  # noqa: S314
    except ET.ParseError as error:
        raise ValueError(f"not the output of nvidia-smi: {error}") from None
    gpus = (_gpu(number, node) for number, node in enumerate(log.findall("gpu")[:_MOST]))
    return Driver(_text(log, "driver_version"), _text(log, "cuda_version"), tuple(gpus))


def _gpu(number: int, node: Any) -> Gpu:
    reasons = node.find("clocks_event_reasons")  # since driver 535
    reasons = node.find("clocks_throttle_reasons") if reasons is None else reasons
    errors = [(value.tag, (value.text or "").strip()) for value in node.iter() if _LOST.search(value.text or "")]
    remapped = node.find("remapped_rows")
    retired = node.find("retired_pages")
    instances = node.findall("mig_devices/mig_device")
    return Gpu(
        number,
        _text(node, "product_name") or "a GPU",
        _text(node, "pci/pci_bus_id") or str(node.get("id", "")),
        _bytes(_text(node, "fb_memory_usage/used")),
        _bytes(_text(node, "fb_memory_usage/total")),
        _number(_text(node, "utilization/gpu_util")),
        _number(_text(node, "temperature/gpu_temp")),
        _number(_text(node, "temperature/gpu_temp_slow_threshold")),
        tuple(_active(reasons)),
        (_errors(node.find("ecc_errors/volatile"), "corr"), _errors(node.find("ecc_errors/aggregate"), "corr")),
        (_errors(node.find("ecc_errors/volatile"), "uncorr"), _errors(node.find("ecc_errors/aggregate"), "uncorr")),
        _replaced(remapped, retired),
        _yes(remapped, "remapped_row_pending") or _yes(retired, "pending_retirement", "pending_blacklist"),
        _yes(remapped, "remapped_row_failure"),
        _text(node, "mig_mode/current_mig") == "Enabled",
        len(instances),
        _text(node, "compute_mode"),
        {"Enabled": True, "Disabled": False}.get(_text(node, "persistence_mode")),
        tuple(_processes(node)),
        next((f"{tag}: {said}" for tag, said in errors if not tag.endswith("process_name")), ""),
    )


def _processes(node: Any) -> Iterator[Process]:
    for one in node.findall("processes/process_info")[:_MOST]:
        pid = _text(one, "pid")
        if pid.isdecimal():
            yield Process(int(pid), _text(one, "type"), _text(one, "process_name"), _bytes(_text(one, "used_memory")))


def _active(reasons: Any) -> Iterator[str]:
    """``hw_thermal_slowdown`` and the like."""
    for reason in () if reasons is None else reasons:
        if (reason.text or "").strip() == "Active":
            yield re.sub(r"^clocks_(?:throttle|event)_reason_", "", reason.tag)


def _errors(node: Any, kind: str) -> int | None:
    """The sum of the errors of one kind: before Ampere by bits (``double_bit``), since then by memories."""
    if node is None:
        return None
    old = node.find(f"{'double' if kind == 'uncorr' else 'single'}_bit/total")
    if old is not None:
        values = [_number(old.text)]
    else:
        values = [_number(one.text) for one in node if re.search(rf"_{kind}ectable", one.tag)]
    known = [int(value) for value in values if value is not None]
    return sum(known) if known else None


def _replaced(remapped: Any, retired: Any) -> int | None:
    names = ("remapped_row_corr", "remapped_row_unc")
    counts = [_number(_text(remapped, name)) for name in names] if remapped is not None else []
    kinds = ("multiple_single_bit_retirement/retired_count", "double_bit_retirement/retired_count")
    counts += [_number(_text(retired, name)) for name in kinds] if retired is not None else []
    known = [int(count) for count in counts if count is not None]
    return sum(known) if known else None


def _yes(node: Any, *names: str) -> bool:
    return node is not None and any(_text(node, name) == "Yes" for name in names)


def _text(node: Any, path: str) -> str:
    """The text of an element; empty where it says that there is none."""
    text = (node.findtext(path) or "").strip()
    return "" if text.strip("[]") in ("N/A", "Not Supported") else text


def _number(text: str | None) -> float | None:
    match = _NUMBER.match((text or "").strip())
    return float(match[0]) if match else None


def _bytes(text: str) -> int | None:
    number = _number(text)
    return None if number is None else int(number * _MIB)
