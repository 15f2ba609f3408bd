"""From paths to one Recording: each file is given to the formats that its content shows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from ddpnb.errors import UsageError
from ddpnb.recording import arguments
from ddpnb.recording.recording import Recording
from ddpnb.reports import files, flight_recorder, formats, logs, together
from ddpnb.reports.facts import Found
from ddpnb.reports.files import ReportFile

Report = Callable[[int, int], None]
_KNOWN = (
    "Known are flight-recorder dumps, NCCL and gloo logs, output of torchrun and other launchers, tracebacks, py-spy and "
    "faulthandler dumps, kernel logs, and recordings of ddpnb."
)
_ENCODINGS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}  # as PowerShell writes a file, by its first bytes
_SECONDS, _LARGE, _BYTES_A_SECOND = 16, 64 << 20, 2 << 20  # of processor time for files of that size, and beyond it


def read(paths: Sequence[str | os.PathLike[str]], progress: Report = lambda _ready, _all: None) -> Recording:
    """Read the files of one job.

    Args:
        paths: files and folders, of any of the known formats.
        progress: called with the number of files that are read, and of all.

    Returns:
        One Recording of all of them.

    Raises:
        UsageError: a file cannot be read or is refused, or nothing is known in any of them.
    """
    given = files.find(paths)
    if not given:
        raise UsageError(f"{arguments.short(os.fsdecode(paths[0]))} is an empty folder.", _KNOWN)
    found: list[Found] = []
    dumps: list[ReportFile] = []
    check = _limit(paths, given)
    for turn, file in enumerate(given):
        progress(turn, len(given))
        head = file.head()
        if flight_recorder.recognises(head):
            dumps.append(file)
        elif (encoding := _ENCODINGS.get(head[:2])) is not None:
            found += _of_log(file, encoding, check)
        elif b"\x00" not in head[:1024]:
            found += _of_log(file, "utf-8", check)
        check()
    if dumps:
        found += flight_recorder.read(dumps, progress)
    if not any(one.facts for one in found):
        shown = arguments.short(given[0].path) if len(given) == 1 else f"{len(given)} files"
        raise UsageError(f"nothing that a hung or failed job writes is known in {shown}.", _KNOWN)
    return together.recording([one for one in found if one.facts])


def _of_log(file: ReportFile, encoding: str, check: Callable[[], None]) -> list[Found]:
    beginning, end = file.ends()
    check()
    text = beginning.decode(encoding, "replace").removeprefix("\ufeff")
    found = formats.facts_of(logs.read(file.path, text), check)
    if end:
        found += formats.facts_of(logs.read(file.path, end.decode(encoding, "replace")), check)
    return found


def _limit(paths: Sequence[str | os.PathLike[str]], files: Sequence[ReportFile]) -> Callable[[], None]:
    """Limit the processor time to what files of this size need: an archive of a few bytes holds any number of logs.

    Returns:
        What raises UsageError after that time.
    """
    size = max(
        sum(file.size for file in files if file.size > 0),
        sum(os.path.getsize(path) for path in paths if os.path.isfile(path)),
    )
    until = time.thread_time() + _SECONDS + max(0, size - _LARGE) / _BYTES_A_SECOND

    def check() -> None:
        if time.thread_time() > until:
            shown = arguments.short(os.fsdecode(paths[0])) if len(paths) == 1 else f"{len(paths)} paths"
            raise UsageError(
                f"reading {shown} takes longer than logs of that size may take.",
                "Unpack an archive and give the folder; of a log, give the last part.",
            )

    return check
