"""Notes how the children of a process end that ``multiprocessing`` started: ``torch.multiprocessing.spawn`` waits for its ranks
at once and ends the others when one has failed, so that nobody else sees by which signal which of them ended, or what was
raised by one that had not joined the others yet.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from multiprocessing.popen_fork import Popen
from multiprocessing.process import BaseProcess
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
        try:
            status = poll(self, flag)
        except BaseException as error:  # such as Ctrl-C: the traceback is the program's
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise
        if known is None and status is not None and not is_rank():
            with suppress(OSError):
                write_private(protocol.exit_file(folder, self.pid), str(status))
        return status

    Popen.poll = noted


def note_exceptions(folder: str, is_rank: Callable[[], bool]) -> None:
    """Write what a process of ``multiprocessing`` has raised to a file: it itself does, or the one that reads what
    ``torch.multiprocessing.spawn`` has caught in it.

    Args:
        folder: of the job.
        is_rank: as for ``note_ends``.
    """
    made = ProcessRaisedException.__init__

    def noted(self: Any, msg: str, error_index: int, error_pid: int) -> None:
        made(self, msg, error_index, error_pid)
        if not is_rank():
            _write(folder, error_pid, os.getpid(), msg)

    ProcessRaisedException.__init__ = noted
    show, outermost = traceback.print_exc, BaseProcess._bootstrap.__code__  # type: ignore[attr-defined]

    @wraps(show)
    def shown(*args: Any, **kwargs: Any) -> None:
        if sys._getframe(1).f_code is outermost and not is_rank():  # nothing has caught it
            _write(folder, os.getpid(), os.getppid(), traceback.format_exc())
        show(*args, **kwargs)

    traceback.print_exc = shown


def _write(folder: str, pid: int, parent: int, text: str) -> None:
    with suppress(Exception):
        said = {"parent": parent, "at_ns": time.monotonic_ns(), "text": text[-_LONGEST:]}
        write_private(protocol.raised_file(folder, pid), json.dumps(said))
