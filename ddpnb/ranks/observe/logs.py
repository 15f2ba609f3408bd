"""The ranks' log files: read all, read the end, find the last frames of a crash."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable

from ddpnb.ranks.exit_reasons import last_part
from ddpnb.recorder.stacks.user_frames import is_user_file
from ddpnb.recording.files import private
from ddpnb.recording.stacks import Frame

_END = 4096  # bytes
_KEPT = 16 << 20  # bytes of each log that are copied for a user to read
_LAST_FRAME = re.compile(r'  File "(.{1,500})", line (\d{1,7}) in (.{1,200})')


_LOG = re.compile(r"rank\d{1,9}\.log")
_ASIDE = re.compile(r"rank\d{1,9}\.log\.(\d{1,9})")


def set_aside(folder: str) -> None:
    """Keep the logs of an earlier run in this folder: ``rank0.log`` becomes ``rank0.log.1``, all with one number."""
    names = os.listdir(folder)
    current = [name for name in names if _LOG.fullmatch(name)]
    if not any(os.path.getsize(os.path.join(folder, name)) for name in current):
        return
    number = max((int(match[1]) for name in names if (match := _ASIDE.fullmatch(name))), default=0) + 1
    for name in current:
        os.rename(os.path.join(folder, name), os.path.join(folder, f"{name}.{number}"))


def whole(log: str) -> str:
    """The complete output of a rank, standard output and error."""
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def keep(logs: Iterable[str]) -> str:
    """Copy the end of these logs to a new folder that is not removed; its path, or "" on failure."""
    folder = ""
    try:
        folder = tempfile.mkdtemp(prefix="ddpnb-logs-")
        for log in logs:
            path = os.path.join(folder, os.path.basename(log))
            with open(log, "rb") as file, open(path, "wb", opener=private) as copy:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _KEPT))
                copy.write(file.read(_KEPT))
    except OSError:
        if folder:  # the disk is full: half a copy would not help
            shutil.rmtree(folder, ignore_errors=True)
        return ""
    return folder


def end(log: str) -> str:
    """The end of what a rank has written."""
    return last_part(log, _END)


def written(log: str) -> int:
    """How many bytes a rank has written."""
    try:
        return os.stat(log).st_size
    except OSError:
        return 0


def last_words(log: str) -> tuple[Frame, ...]:
    """The frames that faulthandler wrote to the log of a process that crashed in native code."""
    _, fatal, dump = last_part(log, 64 << 10).rpartition("Fatal Python error: ")
    _, _, current = dump.partition("Current thread ")
    if not fatal or not current:
        return ()
    lines = current.partition("\n")[2].split("\n\n")[0].splitlines()
    matches = [match for line in lines if (match := _LAST_FRAME.fullmatch(line))]
    frames = [Frame(m[1], int(m[2]), m[3], is_user_file(m[1])) for m in matches]
    return tuple(reversed(frames))
