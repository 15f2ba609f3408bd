"""The log of a bisection as a file: where it is kept, who writes it, and reading it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from ddpnb.errors import UsageError
from ddpnb.recording.files import check_writable

SCHEMA = 2
LOG = "ddpnb-bisect.json"  # where a command or a guide keeps it


@contextmanager
def not_a_log() -> Iterator[None]:
    """Inside, what is missing or of another type means that it is not the log of a search.

    Raises:
        UsageError: that is so.
    """
    try:
        yield
    except UsageError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise UsageError("this is not the log of a search.", "Give the file that a search has written.") from error


def take_log(path: str | None = None) -> tuple[str, str]:
    """A file for the log of a new search; an earlier log, which may be of an interrupted search, is kept.

    Args:
        path: of the log; None: the usual one, or another one where a search of another process writes that.

    Returns:
        The path, and what is to be said about it; empty: nothing.

    Raises:
        UsageError: another search writes this log.
        CannotWrite: no log can be written there.
    """
    log = path or LOG
    if (process := searching(log)) is not None:
        if path is not None:
            raise UsageError(f"process {process} writes {path}.", "Give this search a log of its own.")
        log = f"ddpnb-bisect-{os.getpid()}.json"
    check_writable(log)
    if os.path.isfile(log) and os.path.getsize(log):
        os.replace(log, f"{log}.1")
        return log, f"an earlier log is now {log}.1"
    return log, "" if log in (path, LOG) else f"another search runs here: the log of this one is {log}"


def searching(path: str) -> int | None:
    """The process that still writes this log; None: there is none."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError, psutil.Error):
        with open(path, encoding="utf-8") as file:
            pid, began = json.load(file)["process"]
        if psutil.Process(pid).create_time() == began and pid != os.getpid():
            return pid
    return None


def read_log(path: str) -> dict[str, Any]:
    """A log that ``Bisection.save`` has written.

    Raises:
        UsageError: there is no such file, or it is not such a log.
    """
    name = os.path.basename(path)
    try:
        with not_a_log(), open(path, encoding="utf-8") as file:
            log = json.load(file)
            version = log["schema"]
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}.") from None
    if version != SCHEMA:
        raise UsageError(
            f"{name} is of version {version!r:.20}, and this ddpnb reads version {SCHEMA}.",
            "Begin a new search, or use the version of ddpnb that wrote it.",
        )
    return log
