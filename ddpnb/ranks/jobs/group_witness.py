"""Whether a signal was sent to this process alone, or to all of its process group: as a terminal does, Slurm and ``timeout``.

The kernel does not say it. So a process in the same group, in which all these signals are blocked, keeps what came to it: it
is there to be read from /proc.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_ARRIVED_S = 0.02  # within which one signal reaches all processes of a group


class GroupWitness:
    """A process that receives what the whole process group receives. It ends with this one, or with ``close()``."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._begin()

    def _begin(self) -> None:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self._process = subprocess.Popen(
                ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        except OSError:
            self._process = None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def came_to_all(self, number: int) -> bool:
        """Whether this signal, which has come to this process, came to all of its group."""
        time.sleep(_ARRIVED_S)
        if self._process is None or not _pending(self._process.pid) >> (number - 1) & 1:
            return False
        self.close()
        self._begin()  # it keeps one of each: the next would not be noticed
        return True

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()


def is_in_group(pid: int) -> bool:
    """Whether a process is in the group of this one."""
    try:
        return os.getpgid(pid) == os.getpgrp()
    except OSError:
        return False


def _pending(pid: int) -> int:
    """The signals that wait until a process does not block them any more, as bits."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return next((int(line.split()[1], 16) for line in file if line.startswith("ShdPnd:")), 0)
    except (OSError, ValueError, IndexError):
        return 0
