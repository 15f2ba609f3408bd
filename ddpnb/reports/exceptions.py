"""Python's tracebacks in logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ddpnb.recording.ending import Ending
from ddpnb.recording.messages import tracebacks
from ddpnb.recording.messages.tracebacks import LoggedError
from ddpnb.recording.stacks import Frame
from ddpnb.reports import after
from ddpnb.reports.facts import NOBODY, Ended, Fact, Speaker, Waiting
from ddpnb.reports.logs import Log

NAME = "Python tracebacks"
MARKS = ("Traceback", "Error", "Exception", "terminated with the following error")

_START = re.compile(r"Traceback \(most recent call last\)|-- Process (\d{1,6}) terminated with the following error")
_IGNORED = re.compile(r"^Exception ignored\b", re.MULTILINE)
_SPAWNED = re.compile(r"-- Process (\d{1,6}) terminated with the following error")
_CHAINED = re.compile(r"the direct cause of the following|During handling of the above exception")
#: how a message names the rank that raised it
_NAMED = re.compile(
    r"^NCCL communicator was aborted on rank (\d{1,6})\b|\(PID:\d{1,10}, Device:-?\d{1,6}, RankID:(\d{1,6})\)"
)
#: how the backend of Ascend devices says that a call timed out
_HCCL = re.compile(
    r"ACL stream synchronize failed|error code(?: is)?:? ?507048|\bE[IR](?:0002|R02200)\b|HCCL[^\n]{0,200}(?:time ?-?out|timed out)"
    r"|notify wait timeout|HcclGet[^\n]{0,80}time",
    re.IGNORECASE,
)
#: the process that ran a task of Ray
_TASK = re.compile(r"^ray\.exceptions\.RayTaskError[^\n]{0,400}? \(pid=(\d{1,10}), ip=([\w.:]{1,64})", re.MULTILINE)
_WINDOW = 600  # lines of a traceback and its message
_WRAPPED = 40  # lines of a message
_SHORT = 5_000  # lines: a log that is read whole where no traceback begins
_MOST = 2_000  # exceptions of one process
_LONGEST = 20_000  # characters of a traceback that are kept
#: exceptions of launchers, which report that of a rank
_LAUNCHERS = frozenset(
    {
        "ChildFailedError", "CalledProcessError", "ProcessExitedException", "ProcessRaisedException", "SignalException",
        "RayTaskError", "SystemExit", "ActorDiedError", "RayActorError", "WorkerCrashedError",
    }
)  # fmt: skip


def read(log: Log) -> Iterator[Fact]:
    """The exception that ended each rank, and those whose rank is not known."""
    usual = after.usual_lines(log)
    for speaker, numbers in _windows(log).items():
        lines = list(map(log.line, numbers))
        errors = tracebacks.read("\n".join(lines))[-_MOST:]
        own = [error for error in errors if not _of_launcher(error)]
        for fact, line in _facts(speaker, [_unwrapped(log, numbers, error) for error in own], lines):
            if _HCCL.search(fact.ending.message[:_LONGEST]):
                yield Waiting(fact.speaker, "call", at=log.quoted(log.starts[numbers[line]]))
                continue
            continued = after.continued(log, numbers[line], speaker, usual)
            last = after.is_last(log, numbers[line], speaker)
            yield replace(fact, at=log.quoted(log.starts[numbers[line]]), continued=continued, last=last)


def _windows(log: Log) -> dict[Speaker, list[int]]:
    """The lines of each speaker from the beginnings of tracebacks on: most lines of a log belong to none."""
    begins = [log.line_at(match.start()) for match in _START.finditer(log.text)]
    wanted: dict[Speaker, list[int]] = {}
    for number in range(len(log.starts)) if not begins and len(log.starts) <= _SHORT else ():
        wanted.setdefault(log.speakers[number], []).append(number)
    last: dict[Speaker, int] = {}
    for begin in begins:
        speaker = log.speakers[begin]
        first, taken = max(begin, last.get(speaker, -1) + 1), 0
        # Ranks write between each other's lines: a window has as many lines of this speaker.
        for number in range(first, min(begin + 20 * _WINDOW, len(log.starts))):
            if log.speakers[number] == speaker:
                wanted.setdefault(speaker, []).append(number)
                taken += 1
            last[speaker] = number
            if taken == _WINDOW:
                break
    return wanted


def _of_launcher(error: LoggedError) -> bool:
    """An exception that reports that of a rank; mp.spawn once raised a bare Exception."""
    return _name(error) in _LAUNCHERS or (_name(error) == "Exception" and not error.message.strip())


def _name(error: LoggedError) -> str:
    return error.exception.rpartition(".")[2]


def _unwrapped(log: Log, numbers: list[int], error: LoggedError) -> LoggedError:
    """An exception whose message a terminal has wrapped: the rest of it is in lines without a prefix."""
    line, message = numbers[error.line], error.message
    if log.speakers[line] == NOBODY:
        return error
    for number in range(line + 1, min(line + _WRAPPED, len(log.starts))):
        if log.speakers[number] != NOBODY or not _is_open(message):
            break
        message += log.line(number)
    return error if message == error.message else replace(error, message=message[:_LONGEST])


def _is_open(text: str) -> bool:
    """Whether it ends within brackets."""
    return text.count("(") > text.count(")") or text.count("[") > text.count("]")


def _facts(speaker: Speaker, errors: list[LoggedError], lines: list[str]) -> Iterator[tuple[Ended, int]]:
    """The exceptions, each with the line of its message among these."""
    starts = _starts(errors, lines)
    for index, error in enumerate(errors):
        spawned = _SPAWNED.search("\n".join(lines[max(starts[index] - 3, 0) : error.line]))
        named = _NAMED.search(error.message[:_LONGEST])
        said = next((rank for match in (spawned, named) if match for rank in match.groups() if rank), "")
        who = Speaker(int(said)) if said and speaker.rank is None else speaker
        if who == NOBODY and (task := _TASK.search("\n".join(lines[starts[index] : error.line]))):
            who = Speaker(None, int(task[1]), task[2])
        chained = index + 1 < len(errors) and starts[index + 1] <= error.line
        if chained or (speaker != NOBODY and not spawned and index + 1 < len(errors)):
            continue  # a later one ended the process
        if _IGNORED.search("\n".join(lines[max(starts[index] - 2, 0) : starts[index]])):
            continue  # raised in a finalizer, which ends no process
        text = "\n".join(lines[starts[index] : error.line])[-_LONGEST:]
        traceback = f"{text}\n{error.exception}: {error.message[:_LONGEST]}".strip()
        before = errors[index - 1] if index and starts[index - 1] == starts[index] else None
        frames = _interrupted_in(before, error) if before is not None else error.frames
        yield Ended(who, Ending("raised", 1, _name(error), error.message, frames, traceback)), error.line


def _interrupted_in(before: LoggedError, error: LoggedError) -> tuple[Frame, ...]:
    """The frames of an exception; of a KeyboardInterrupt during the handling of another one where that one was raised.

    A rank that waits in a collective sees Ctrl-C only when the call has failed. The traceback of an exception that was
    handled begins at the frame that handled it.
    """
    if _name(error) != "KeyboardInterrupt" or not before.frames:
        return error.frames
    handled = (before.frames[0].file, before.frames[0].function)
    places = [place for place, frame in enumerate(error.frames) if (frame.file, frame.function) == handled]
    return (*error.frames[: places[-1]], *before.frames) if places else error.frames


def _starts(errors: list[LoggedError], lines: list[str]) -> list[int]:
    """The line at which the text of each exception begins: that of the first in its chain."""
    starts: list[int] = []
    before = 0
    for error in errors:
        begin = next(
            (
                number
                for number in range(error.line, max(before, error.line - _WINDOW) - 1, -1)
                if _START.search(lines[number])
            ),
            error.line,
        )
        chained = starts and any(_CHAINED.search(line) for line in lines[max(before, begin - 4) : begin])
        starts.append(starts[-1] if chained else begin)
        before = error.line
    return starts
