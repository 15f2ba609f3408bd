"""Dumps of Python's faulthandler: after a crash in native code, at a time-out, or as asked for by a signal."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import replace

from ddpnb.recording.ending import Ending
from ddpnb.recording.messages.tracebacks import of_user
from ddpnb.recording.names import given_name
from ddpnb.recording.stacks import MAX_FRAMES, MAX_THREADS, Frame, Stack
from ddpnb.reports.facts import NOBODY, Ended, Fact, Speaker
from ddpnb.reports.logs import Log, last_match
from ddpnb.reports.pyspy import facts, process_of, rank_above

NAME = "faulthandler dump"
MARKS = ("(most recent call first)",)

_THREAD = re.compile(r"(Current thread|Thread) (0x[0-9a-f]{1,18})(?: \[(.{0,100}?)\])? \(most recent call first\):")
_FRAME = re.compile(r'\s{1,8}File "(.{1,1000}?)", line (\d{1,9}|\?\?\?) in (.{1,200})$')
_HEAD = re.compile(r"(Fatal Python error: ([^\n]{1,200})|^Timeout \([^\n)]{1,30}\)!)", re.MULTILINE)
_SIGNALS = {
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Floating point exception": signal.SIGFPE,
    "Floating-point exception": signal.SIGFPE,
    "Illegal instruction": signal.SIGILL,
}
_NEAR = 6  # lines between two threads of one dump
_MOST = 100_000  # threads of one log


def read(log: Log) -> Iterator[Fact]:
    """The stacks of each dump, the last of a process counts; with how the process ended, where it crashed."""
    before = 0
    for speaker, start, end, threads in _dumps(log):
        rank = rank_above(log, before, start)
        who = replace(speaker, rank=rank) if rank is not None else speaker
        head = last_match(_HEAD, log.text, max(before, start - 1000), start)
        before = end
        stacks = _with_main([thread for thread, _ in threads])
        if who == NOBODY and (
            head is None or not head[2]
        ):  # of one process, of which the number of its thread is known
            who = Speaker(pid=process_of(tuple(stacks)))
        if who != NOBODY and any(stack.frames for stack in stacks):
            yield from facts(who, tuple(stack for stack in stacks if stack.frames), None)
        if head is not None and head[2]:
            code = _SIGNALS.get(head[2].strip())
            current = next((stack for stack, current in threads if current), stacks[0])
            text = log.text[head.start() : end][:20_000]
            ending = Ending("died", -code if code else 1, "", head[1].strip(), current.frames, text)
            yield Ended(who, ending)


def _dumps(log: Log) -> Iterator[tuple[Speaker, int, int, list[tuple[Stack, bool]]]]:
    """(who, from where, to where, its threads with whether it is the current one) of each dump."""
    threads: list[tuple[Stack, bool]] = []
    speaker, start, end, line = NOBODY, 0, 0, -1
    for number, match in enumerate(_THREAD.finditer(log.text)):
        if number >= _MOST:
            break
        own, first = log.speaker_at(match.start()), log.line_at(match.start())
        begins = own != speaker or first - line > _NEAR or (match[1] == "Current thread" and threads)
        if threads and (
            begins or _HEAD.search(log.text, end, match.start()) or rank_above(log, end, match.start()) is not None
        ):
            yield speaker, start, end, threads
            threads = []
        if not threads:
            speaker, start = own, match.start()
        frames, last = _frames(log, match.end())
        name = given_name(match[3] or match[2])
        if len(threads) < MAX_THREADS:
            threads.append((Stack(name, frames, int(match[2], 16) & (1 << 62) - 1), match[1] == "Current thread"))
        line = last
        end = log.starts[last + 1] if last + 1 < len(log.starts) else len(log.text)
    if threads:
        yield speaker, start, end, threads


def _frames(log: Log, offset: int) -> tuple[tuple[Frame, ...], int]:
    """The frames of a thread, outermost first, and the number of its last line."""
    frames: list[Frame] = []
    first = log.line_at(offset)
    speaker = log.speakers[first]
    last = first
    for number in range(first + 1, min(first + 4000, len(log.starts))):
        if log.speakers[number] != speaker:
            continue
        line = log.line(number)
        match = _FRAME.match(line)
        if match is None and line.strip() not in ("...", "<no Python frame>"):
            break
        last = number
        if match is not None:
            at = int(match[2]) if match[2].isdigit() else 0
            frames.append(Frame(match[1], at, given_name(match[3]), of_user(match[1])))
    return tuple(frames[::-1][-MAX_FRAMES:]), last


def _with_main(stacks: list[Stack]) -> list[Stack]:
    """faulthandler lists the newest thread first, so the main one is the last."""
    main = next(
        (n for n in range(len(stacks) - 1, -1, -1) if stacks[n].frames[:1] and _begins(stacks[n])), len(stacks) - 1
    )
    return [replace(stack, main=True, thread="MainThread") if n == main else stack for n, stack in enumerate(stacks)]


def _begins(stack: Stack) -> bool:
    return stack.frames[0].function in ("<module>", "_run_module_as_main")
