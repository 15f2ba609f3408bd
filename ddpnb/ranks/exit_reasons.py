"""How a process of a world ended, or could not be started, in words."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from ddpnb.errors import LaunchError

_TAIL_BYTES = 4000


def cannot_start(error: Exception) -> LaunchError:
    """The system refuses a process, a thread or a file that a world needs."""
    if isinstance(error, LaunchError):
        return error
    reason = (error.strerror if isinstance(error, OSError) else None) or error
    return LaunchError(
        f"a process of the world could not be started: {reason}.",
        "Check the limits on processes (ulimit -u) and open files (ulimit -n), the free memory, and the free space in TMPDIR.",
    )


def end_of(log: str, status: int | None) -> str:
    """How a process with this log ended, of which this is the exit status; None: not known."""
    if _interrupted(_last_lines(log)):
        status = -signal.SIGINT
    return "ended" if status is None else in_words(status)


def in_words(status: int) -> str:
    """How a process ended, of which this is the exit status as Popen and psutil have it."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal
        return f"was killed by signal {-status}"


def tail(log: str) -> str:
    """The end of a process's log, unless it shows no more than where an interrupt came."""
    lines = _last_lines(log)
    return "Its last lines:\n    " + "\n    ".join(lines) if lines and not _interrupted(lines) else ""


def last_part(log: str, most: int) -> str:
    """The end of a file, at most so many bytes; empty if it cannot be read."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most))
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def _last_lines(log: str) -> list[str]:
    return last_part(log, _TAIL_BYTES).splitlines()[-12:]


def _interrupted(lines: Sequence[str]) -> bool:
    """Whether a log ends with the traceback of an interrupt: it leads through whatever was imported just then."""
    return bool(lines) and lines[-1].startswith("KeyboardInterrupt")
