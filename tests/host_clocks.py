"""Clocks of a simulated host that can be set while its processes run.

Linux gives no host of namespaces a wall clock of its own, and a monotonic clock only before its first process. So what
Python's ``time`` says is changed: of the monotonic and of the wall clock, in each Python process of the host. What the
kernel does with its clocks is not simulated: time-outs, times of files, the clocks of torch.
"""

from __future__ import annotations

import mmap
import struct
import textwrap
from pathlib import Path

from tests.simulated_hosts import ROOT

_FILE = "ahead"
_LAYOUT = struct.Struct("<qq")  # nanoseconds: monotonic, wall
_SITE = """
    import mmap, os, struct, time

    with open(os.path.join(os.path.dirname(__file__), "ahead"), "rb") as _file:
        _ahead = mmap.mmap(_file.fileno(), 16, prot=mmap.PROT_READ)


    def _shifted(real, at, unit):
        return lambda: real() + struct.unpack_from("<q", _ahead, at)[0] * unit


    time.monotonic_ns = _shifted(time.monotonic_ns, 0, 1)
    time.monotonic = _shifted(time.monotonic, 0, 1e-9)
    time.time_ns = _shifted(time.time_ns, 8, 1)
    time.time = _shifted(time.time, 8, 1e-9)
"""


class HostClocks:
    """What is added to the clocks of a host.

    Args:
        folder: that all hosts see; it is made.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(textwrap.dedent(_SITE))
        (folder / _FILE).write_bytes(_LAYOUT.pack(0, 0))
        with open(folder / _FILE, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _LAYOUT.size)
        #: environment variables of a process of the host
        self.variables = {"PYTHONPATH": f"{folder}:{ROOT}"}

    def jump(self, *, monotonic_s: float = 0.0, wall_s: float = 0.0) -> None:
        """Set the clocks forward, or back."""
        before = _LAYOUT.unpack(self._memory)
        self._memory[:] = _LAYOUT.pack(before[0] + int(monotonic_s * 1e9), before[1] + int(wall_s * 1e9))
