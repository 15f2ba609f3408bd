"""Notes how the children of a process end that ``multiprocessing`` started: ``torch.multiprocessing.spawn`` waits for its ranks
at once and ends the others when one has failed, so that nobody else sees by which signal which of them ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.popen_fork import Popen
from typing import Any

from ddpnb.recording import protocol
from ddpnb.recording.files import write_private


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
