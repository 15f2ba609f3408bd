"""From paths to one Recording: each file is given to the formats that its content shows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ddpnb import arguments
from ddpnb.errors import UsageError
from ddpnb.model.recording import Recording
from ddpnb.reports import files, flight_recorder, formats, logs, together
from ddpnb.reports.facts import Found
from ddpnb.reports.files import ReportFile

Report = Callable[[int, int], None]
_KNOWN = (
    "Known are flight-recorder dumps, NCCL and gloo logs, output of torchrun and other launchers, tracebacks, py-spy and "
    "faulthandler dumps, kernel logs, and recordings of ddpnb."
)
_ENCODINGS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}  # as PowerShell writes a file, by its first bytes
_CUT = "Of {path} the first {first} MiB and the last {last} MiB were read."


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
    for turn, file in enumerate(given):
        progress(turn, len(given))
        head = file.head()
        if flight_recorder.recognises(head):
            dumps.append(file)
        elif (encoding := _ENCODINGS.get(head[:2])) is not None:
            found += _of_log(file, encoding)
        elif b"\x00" not in head[:1024]:
            found += _of_log(file)
    if dumps:
        found += flight_recorder.read(dumps, progress)
    if not any(one.facts for one in found):
        shown = arguments.short(given[0].path) if len(given) == 1 else f"{len(given)} files"
        raise UsageError(f"nothing that a hung or failed job writes is known in {shown}.", _KNOWN)
    return together.recording([one for one in found if one.facts])


def _of_log(file: ReportFile, encoding: str = "utf-8") -> list[Found]:
    beginning, end = file.ends()
    text = beginning.decode(encoding, "replace").removeprefix("\ufeff")
    found = formats.facts_of(logs.read(file.path, text))
    if end:
        found += formats.facts_of(logs.read(file.path, end.decode(encoding, "replace")))
    return found
