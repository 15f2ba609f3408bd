"""How a process of a world ended, or could not be started, in words."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

from ddpnb.errors import LaunchError


def cannot_start(error: Exception) -> LaunchError:
    """The system refuses a process, a thread or a file that a world needs."""
    if isinstance(error, LaunchError):
        return error
    reason = (error.strerror if isinstance(error, OSError) else None) or error
    return LaunchError(
        f"a process of the world could not be started: {reason}.",
        "Check the limits on processes (ulimit -u) and open files (ulimit -n), the free memory, and the free space in TMPDIR.",
    )


def end_of(launcher: Any, status: int | None) -> str:
    """How a process ended, of which this is the exit status as psutil has it; None: not known."""
    if _interrupted(_last_lines(launcher)):
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


def tail(launcher: Any) -> str:
    """The end of a process's log, unless it shows no more than where an interrupt came."""
    lines = _last_lines(launcher)
    return "Its last lines:\n    " + "\n    ".join(lines) if lines and not _interrupted(lines) else ""


def _last_lines(launcher: Any) -> list[str]:
    try:  # it removes the file when the process has ended, and keeps what was in it
        return str(launcher.get_output())[-4000:].splitlines()[-12:]
    except (OSError, ValueError, AttributeError):
        return []


def _interrupted(lines: Sequence[str]) -> bool:
    """Whether a log ends with the traceback of an interrupt: it leads through whatever was imported just then."""
    return bool(lines) and lines[-1].startswith("KeyboardInterrupt")
