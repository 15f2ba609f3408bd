"""How processes ended that are no children of this one: read from the kernel before their parent has waited for them."""

from __future__ import annotations

import os
import select
import threading
import time
from contextlib import suppress

from ddpnb.recording.descriptors import Descriptor

_LOOK_S = 0.1


class Exits:
    """Notes the exit status of processes, as far as their parents leave the time to read it."""

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}  # process ID -> exit status; negative: the signal
        self.ended_ns: dict[int, int] = {}  # process ID -> when it ended
        self._watched: dict[
            int, tuple[int, Descriptor]
        ] = {}  # number of a descriptor -> the process that lives, and it
        self._poll = select.poll()
        self._thread: threading.Thread | None = None

    def watch(self, pid: int) -> None:
        """Note how this process ends."""
        with suppress(OSError, AttributeError):  # it has ended; or a kernel without such descriptors
            descriptor = Descriptor(os.pidfd_open(pid))
            self._watched[descriptor.number] = pid, descriptor
            self._poll.register(descriptor.number, select.POLLIN)
            if self._thread is None:
                self._thread = threading.Thread(target=self._follow, name="ddpnb exits", daemon=True)
                self._thread.start()

    def _follow(self) -> None:
        while True:
            for number, _ in self._poll.poll(_LOOK_S * 1000):
                pid, descriptor = self._watched.pop(number)
                self._poll.unregister(number)
                if not descriptor.is_ours:  # closed by the program: the end is seen otherwise, without its time
                    continue
                self.ended_ns[pid] = time.monotonic_ns()
                status = exit_status(pid)
                if status is not None:
                    self.statuses[pid] = status
                descriptor.close()


def exit_status(pid: int) -> int | None:
    """The exit status of a process that has ended and that nobody has waited for yet."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
        return os.waitstatus_to_exitcode(int(fields[-1])) if fields[0] == b"Z" else None
    except (OSError, ValueError, IndexError):
        return None
