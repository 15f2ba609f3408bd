"""``ddpnb.load``: a Recording, from a file of ddpnb, from records of ranks, or from the logs and dumps of any job."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ddpnb.errors import UsageError
from ddpnb.recording import arguments, recording_file
from ddpnb.recording.progress import Progress
from ddpnb.recording.recording import Recording

_SLOW_S = 1.0  # after which the progress is shown
_HINT = "Give the path of a recording, of a log or a dump, of a folder of these, or a list of paths."


def load(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Recording:
    """Load a recording, or read the logs and dumps of a job that hung or failed elsewhere.

    What a file is, is seen from its content. Several files of one job, of several ranks and kinds, make one Recording:
    flight-recorder dumps (pickle or JSON), logs with lines of NCCL's watchdog, tables of torchrun, tracebacks, dumps of
    py-spy, and others. Nothing in a file is executed.

    Args:
        path: a file that ``World.save()``, ``Recording.save()`` or ``ddpnb run --save`` wrote; a log or a dump; a folder with
            such files; the folder of ``ddpnb run --record``, of a job that runs or is over; or a list of them, all of one job.

    Returns:
        The Recording, which ``ddpnb.diagnose()``, ``ddpnb.show()`` and ``ddpnb.reenact()`` take. Its ``report`` says what was
        read; it is None for a file of ddpnb.

    Raises:
        UsageError: a file does not exist, is damaged or tries to run code, or nothing in it is known.

    Example:
        >>> ddpnb.diagnose(ddpnb.load("torchrun.log"))
    """
    paths = _paths(path)
    with Progress("reading", 0, after_s=_SLOW_S) as shown:
        return read(paths, shown.update)


def read(paths: Sequence[str], progress: Callable[[int, int], None]) -> Recording:
    """Read these paths, as ``load()`` does.

    Args:
        paths: files and folders, all of one job.
        progress: called with the number of files that were read, and of all.

    Returns:
        The Recording.

    Raises:
        UsageError: as ``load()``.
    """
    from ddpnb.ranks.observe import records
    from ddpnb.reports import reading

    recorded = [one for one in paths if records.is_records(one)]
    if recorded and len(recorded) < len(paths):
        raise UsageError("records of ranks and other files cannot be loaded together.", "Load each alone.")
    if recorded:
        return records.read(recorded)
    if len(paths) == 1 and recording_file.recognises(paths[0]):
        return recording_file.load(paths[0])
    for one in paths:
        if recording_file.recognises(one):
            raise UsageError(f"{arguments.short(os.fspath(one))} is a recording of its own.", "Load it alone.")
    return reading.read(paths, progress)


def _paths(given: Any) -> list[str]:
    many = [given] if isinstance(given, (str, os.PathLike)) else given
    if not isinstance(many, (list, tuple)) or not many:
        raise UsageError(f"cannot load {arguments.short(given)}.", _HINT)
    paths: list[str] = []
    for one in many:
        if not isinstance(one, (str, os.PathLike)) or not os.fspath(one):
            raise UsageError(f"cannot load {arguments.short(one)}: not a path.", _HINT)
        paths.append(os.fsdecode(one))
    return paths
