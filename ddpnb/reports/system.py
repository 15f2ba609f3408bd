"""What the kernel and the GPU's driver log: processes killed for memory, broken GPUs; and memory errors without a traceback."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from itertools import islice

from ddpnb.recording.ending import Ending
from ddpnb.reports.facts import Ended, Fact, Message, Speaker
from ddpnb.reports.logs import Log

NAME = "kernel log"
MARKS = (
    "ill process",
    "illed process",
    "oom-kill",
    "NVRM",
    "out of memory",
    "fallen off the bus",
    "DataLoader worker (pid",
)

# Each begins with plain text, for which a search is fast.
_KILLED = re.compile(r"[Oo]ut of memory(?:: | \(\w{1,20}\): )Kill(?:ed)? process (\d{1,10})\b")
_KILLER = re.compile(r"oom-kill:constraint=[^\n]{0,600}?,task=([\w. :/-]{1,60}),pid=(\d{1,10})\b")
_XID = re.compile(r"NVRM: Xid \(PCI:[\w:.]{1,20}\): \d{1,4}(?:, pid='?(\d{1,10}|<unknown>)'?)?[^\n]{0,300}")
_LOST = re.compile(r"NVRM: GPU [\w:.]{1,20}: GPU has fallen off the bus[^\n]{0,100}")
#: where the driver is loaded: the same in three lines
_LOST_BEFORE = re.compile(
    r"NVRM: The NVIDIA GPU ([\w:.]{1,20})[^\n]{0,60}\n(?:[^\n]{0,80}NVRM: [^\n]{0,100}\n){0,2}?[^\n]{0,80}NVRM: fallen off the bus"
)
_MEMORY = re.compile(r"out of memory\b[^\n]{0,600}")
_DEVICE = re.compile(r"\b(?:(?:CUDA|HIP|XPU|NPU|MPS)(?: backend)? |CUDA error: )$")
_HOST_MEMORY = re.compile(r"DefaultCPUAllocator: (?:can't allocate|not enough) memory[^\n]{0,200}")
_WORKER = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? [\d, ]{1,200}\) (?:is killed by signal|exited unexpectedly)[^\n]{0,200}"
)
_MOST = 20_000


def read(log: Log) -> Iterator[Fact]:
    """Processes that the kernel killed, errors of GPUs, by the process that they name, and memory errors."""
    for pattern, pid in ((_KILLED, 1), (_KILLER, 2)):
        for match in _some(pattern, log.text):
            ending = Ending("died", -signal.SIGKILL, message=_line(log.text, match))
            yield Ended(Speaker(None, int(match[pid])), ending)
    for match in _some(_XID, log.text):
        named = match[1] or ""
        yield Message(Speaker(None, int(named) if named.isdigit() else 0), match[0])
    for match in _some(_LOST_BEFORE, log.text):
        yield Message(Speaker(), f"NVRM: GPU {match[1]}: GPU has fallen off the bus")
    for pattern in (_LOST, _MEMORY, _HOST_MEMORY, _WORKER):
        first: dict[Speaker, str] = {}
        for match in _some(pattern, log.text):
            device = _DEVICE.search(log.text, max(match.start() - 30, 0), match.start()) if pattern is _MEMORY else None
            if pattern is not _MEMORY or device is not None:
                first.setdefault(log.speaker_at(match.start()), (device[0] if device else "") + match[0].strip())
        yield from (Message(speaker, text) for speaker, text in first.items())


def _some(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    return islice(pattern.finditer(text), _MOST)


def _line(text: str, match: re.Match[str]) -> str:
    start = max(text.rfind("\n", max(match.start() - 200, 0), match.start()) + 1, match.start() - 200, 0)
    end = text.find("\n", match.end(), match.end() + 500)
    return text[start : end if end >= 0 else match.end() + 500].strip()
