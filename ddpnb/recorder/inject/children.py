"""Notes how the children of a process end that ``multiprocessing`` started: ``torch.multiprocessing.spawn`` waits for its ranks
at once and ends the others when one has failed, so that nobody else sees by which signal which of them ended, or what was
raised by one that had not joined the others yet.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.popen_fork import Popen
from typing import Any

from torch.multiprocessing.spawn import ProcessRaisedException

from ddpnb.recording import protocol
from ddpnb.recording.files import write_private

_LONGEST = 100_000  # characters of a traceback


def note_ends(folder: str, is_rank: Callable[[], bool]) -> None:
    """Write the exit status of each child to a file in the folder of the job, as soon as this process has waited for it.

    Args:
        folder: of the job.
        is_rank: whether this process, or the fork of it that asks, has become a rank: its children are no ranks.
    """
    poll = Popen.poll

    def noted(self: Any, flag: int = os.WNOHANG) -> int | None:
        known = self.returncode
        status = poll(self, flag)
        if known is None and status is not None and not is_rank():
            with suppress(OSError):
                write_private(protocol.exit_file(folder, self.pid), str(status))
        return status

    Popen.poll = noted


def note_exceptions(folder: str, is_rank: Callable[[], bool]) -> None:
    """Write what a process of ``torch.multiprocessing.spawn`` has raised to a file, as soon as this process has read it.

    Args:
        folder: of the job.
        is_rank: as for ``note_ends``.
    """
    made = ProcessRaisedException.__init__

    def noted(self: Any, msg: str, error_index: int, error_pid: int) -> None:
        made(self, msg, error_index, error_pid)
        if not is_rank():
            with suppress(Exception):
                said = {"parent": os.getpid(), "at_ns": time.monotonic_ns(), "text": msg[-_LONGEST:]}
                write_private(protocol.raised_file(folder, error_pid), json.dumps(said))

    ProcessRaisedException.__init__ = noted
