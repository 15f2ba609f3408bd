"""The kernel log: GPUs that failed, and processes killed for lack of memory. Not every user may read it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from ddpnb.recording.checks import Check
from ddpnb.recording.messages.errors import PROGRAMS, XID, xid_meaning
from ddpnb.world.host.answers import answer

_KILLED = re.compile(r"ut of memory: Killed process \d+ \((?P<name>[^)\n]{0,64})\)")
_SINCE_START = re.compile(r"^\[\s*(\d+)\.\d+\]")
_READ = "sudo dmesg -T | grep -iE 'xid|out of memory'"
_MOST = 16
_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


def checks() -> list[Check]:
    """Read the log by dmesg, or else by journalctl."""
    trouble = ""
    for command in (("dmesg",), ("journalctl", "-k", "-b", "-q", "--no-pager")):
        found = answer(*command)
        if found.text.strip() and not found.trouble:
            return parse(found.text)
        trouble = trouble or found.trouble
    return [
        Check("kernel log", "unknown", f"not readable here ({trouble or 'it is empty'})", todo=f"Look at it: {_READ}")
    ]


def parse(log: str) -> list[Check]:
    """The checks of the text of a log."""
    lines = log.splitlines()
    xids: dict[tuple[str, int], list[str]] = {}
    kills: list[tuple[str, str]] = []
    for line in lines:
        if match := XID.search(line):
            xids.setdefault((match[1], int(match[2])), []).append(line)
        elif match := _KILLED.search(line):
            kills.append((match["name"], line))
    found = [_of_xid(device, number, xids[device, number]) for device, number in list(xids)[:_MOST]]
    if kills:
        name, last = kills[-1]
        found.append(
            Check(
                "kernel log", "warning",
                f"{len(kills)} process{'es' * (len(kills) > 1)} killed for lack of memory, the last: {name}{_ago(last)}",
                "DDP706", todo="If it was a rank or its worker: use less memory, or a larger limit.", details=_last(line for _, line in kills),
            )
        )  # fmt: skip
    return found or [Check("kernel log", "ok", f"no failures of GPUs, no lack of memory in {len(lines)} lines")]


def _of_xid(device: str, number: int, lines: list[str]) -> Check:
    times = f" {len(lines)} times" if len(lines) > 1 else ""
    told = f"Xid {number}{times} of the GPU at {device}: {xid_meaning(number)}{_ago(lines[-1])}"
    todo = (
        "Stop using this GPU: nvidia-smi -q -d ECC,ROW_REMAPPER; reset it or reboot, and report it if it happens again."
    )
    if number in PROGRAMS:
        todo = "More likely the program than the device: run it with CUDA_LAUNCH_BLOCKING=1, or on another GPU."
    return Check(
        "kernel log", "warning", told, "DDP206", "GPUs", todo, {"xid": number, "device": device, **_last(lines)}
    )


def _last(lines: Iterable[str]) -> dict[str, list[str]]:
    return {"lines": [line[:400] for line in lines][-_MOST:]}


def _ago(line: str) -> str:
    """How long ago, where the line begins with the seconds since the machine was started."""
    if not (match := _SINCE_START.match(line)) or not hasattr(time, "CLOCK_BOOTTIME"):
        return ""
    seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - int(match[1])
    if seconds < 0:
        return ""
    unit, length = next(one for one in _UNITS if seconds >= one[1] or one[1] == 1)
    amount = round(seconds / length)
    return f" ({amount} {unit}{'s' * (amount != 1)} ago)"
