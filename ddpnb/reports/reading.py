"""From paths to one Recording: each file is given to the formats that its content shows."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ddpnb.errors import UsageError
from ddpnb.recording import arguments
from ddpnb.recording.recording import Recording
from ddpnb.reports import archives, encodings, files, flight_recorder, formats, logs, together
from ddpnb.reports.facts import Found
from ddpnb.reports.files import ReportFile
from ddpnb.reports.origin import IN_THE_END, with_origin

Report = Callable[[int, int], None]
_KNOWN = (
    "Known are flight-recorder dumps, NCCL and gloo logs, output of torchrun and other launchers, tracebacks, py-spy and "
    "faulthandler dumps, kernel logs, and recordings of ddpnb."
)
#: of the middle of a large log, the lines around these are read
_WORDS = (
    "raceback", "rror: ", "atchdog", "imed out", "imeout", "emory", "exitcode", "NCCL ", "call first", "NVRM", "MainThread", "grad for rank",
    "by peer", "Killed", "signal ", "CHECKPOINT ", "operation counts",
)  # fmt: skip
_SPLIT = "Give its parts, one at a time (split -C 30M LOG)."
_UNPACK = "Unpack it and give the files."
_SECONDS, _LARGE, _BYTES_A_SECOND = 16, 64 << 20, 2 << 20  # of processor time for files of that size, and beyond it
_A_FILE_S, _OFTEN_S = 0.02, 0.05


class NothingKnown(UsageError):
    """No format knows anything in the files."""


def unread(recording: Recording) -> tuple[str, ...]:
    """What of its files was not read, in whole sentences."""
    notes = recording.report.unknown if recording.report is not None else ()
    return tuple(note for note in notes if note.endswith((_SPLIT, _UNPACK)))


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
    notes: list[str] = []
    check, names = _limit(paths, given), [file.path for file in given]
    for turn, file in enumerate(given):
        progress(turn, len(given))
        head = file.head()
        if flight_recorder.recognises(head):
            dumps.append(file)
        elif kind := archives.unread_kind(head):
            notes.append(
                f"What {arguments.short(file.path)} says: it is a {kind} archive. Unpack it and give the files."
            )
        elif (encoding := encodings.encoding_of(head)) is not None:
            found += _of_log(file, encoding, check, notes, names)
        check()
    if dumps:
        found += flight_recorder.read(dumps, progress)
    if not any(one.facts for one in found):
        shown = arguments.short(given[0].path) if len(given) == 1 else f"{len(given)} files"
        raise NothingKnown(f"nothing that a hung or failed job writes is known in {shown}.", " ".join(notes) or _KNOWN)
    recording = together.recording([one for one in found if one.facts])
    assert recording.report is not None
    return replace(recording, report=replace(recording.report, unknown=(*recording.report.unknown, *notes)))


def _of_log(
    file: ReportFile, encoding: str, check: Callable[[], None], notes: list[str], names: Sequence[str]
) -> list[Found]:
    """The facts of a log; what of it was not read is added to the notes."""
    middle = encodings.Middle(_WORDS, encoding)
    beginning, end = file.ends(files.FIRST, files.LAST, middle.add)
    found: list[Found] = []
    for part in filter(None, (beginning, middle.text, end)):
        check()
        text = logs.without_bars(encodings.decoded(part, encoding))
        log = with_origin(logs.read(file.path, text), text, names, 1 if part is beginning else IN_THE_END)
        found += formats.facts_of(log, check)
    if middle.left_out:
        notes.append(
            f"What the middle of {arguments.short(file.path)} says: it is too large to be read as a whole. {_SPLIT}"
        )
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
    until = (
        time.thread_time()
        + _SECONDS
        + max(0, size - _LARGE) / _BYTES_A_SECOND
        + sum(file.plain for file in files) * _A_FILE_S
    )
    asked = -math.inf

    def check() -> None:
        nonlocal asked  # the time of a thread is slow to ask for
        if time.monotonic() - asked < _OFTEN_S:
            return
        asked = time.monotonic()
        if time.thread_time() > until:
            shown = arguments.short(os.fsdecode(paths[0])) if len(paths) == 1 else f"{len(paths)} paths"
            raise UsageError(
                f"reading {shown} takes longer than logs of that size may take.",
                "Unpack an archive and give the folder; of a log, give the last part.",
            )

    return check
