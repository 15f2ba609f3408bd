"""Ranks that are known from the files that they wrote: their job may be over, or run on other hosts."""

from __future__ import annotations

import os
import re
import signal

from ddpnb.ranks.jobs.exits import exit_status
from ddpnb.ranks.jobs.job_processes import JobProcesses, ended
from ddpnb.recording import status_file
from ddpnb.recording.ending import UNKNOWN_SIGNAL

# What faulthandler calls the signals that it writes a stack for.
_CRASH = re.compile(
    rb"Fatal Python error: (Segmentation fault|Aborted|Bus error|Floating-point exception|Illegal inst)"
)
_SIGNALS = {
    b"Segmentation fault": signal.SIGSEGV,
    b"Aborted": signal.SIGABRT,
    b"Bus error": signal.SIGBUS,
    b"Floating-point exception": signal.SIGFPE,
    b"Illegal inst": signal.SIGILL,
}
_CRASH_LIMIT = 1 << 20
_ENDED = (-signal.SIGKILL, -signal.SIGTERM)  # seen by chance: mostly nobody sees it


class RecordedProcesses(JobProcesses):
    """The ranks of one start of a process group on one host.

    Only a process that lives here has a process ID, and is asked for its stacks.

    Args:
        folder: with the files of these ranks.
    """

    def pid(self, rank: int) -> int:
        return super().pid(rank) if self.alive(rank) else 0

    def listens(self, rank: int) -> bool:
        return self.alive(rank)

    def exit_status(self, rank: int) -> int | None:
        """As the rank wrote it; None: it lives, or was ended from outside, or nobody saw how it ended."""
        known = self.identity(rank)
        if known is None or self.alive(rank):
            return None
        status = exit_status(known.pid) if known.here else None  # its parent has not waited for it yet
        if status is None or status in _ENDED:
            status = status_file.read(self.folder, rank).status
        if status is None:
            status = self._crash(rank)
        if status is None and ended(self.folder, rank):
            return UNKNOWN_SIGNAL
        return status

    def _crash(self, rank: int) -> int | None:
        try:
            with open(os.path.join(self.folder, f"rank{rank}.crash"), "rb") as file:
                found = _CRASH.search(file.read(_CRASH_LIMIT))
        except OSError:
            return None
        return -_SIGNALS[found[1]] if found else None
