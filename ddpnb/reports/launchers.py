"""What launchers say of the processes that they started: torchrun, accelerate, DeepSpeed, mp.spawn, srun, mpirun."""

from __future__ import annotations

import re
import signal
import textwrap
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace

from ddpnb.messages import tracebacks
from ddpnb.model.ending import UNKNOWN_SIGNAL, UNKNOWN_STATUS, Ending
from ddpnb.model.names import given_name
from ddpnb.reports.facts import Ended, Fact, Identity, Message, Speaker, WorldSize
from ddpnb.reports.logs import Log, last_match

NAME = "launcher's log"
MARKS = (
    "local_rank", "exitcode", "ChildFailedError", "Root Cause", "terminated with", "srun:", "slurmstepd", "closing signal", "via signal",
    "subprocess", "mpirun", "prterun", "world_size", "exit code", "nnodes", "return code", "Worker exit type", "actor_id",
)  # fmt: skip

_ROW = re.compile(
    r"rank\s{0,12}: (?P<rank>\d{1,6}) \(local_rank: (?P<local>-?\d{1,6})\)\s{1,20}"
    r"exit_?code\s{0,12}: (?P<code>-?\d{1,6}|<N/A>) \(pid: (?P<pid>\d{1,10})\)(?:[^\n]{0,60}\n"
    r"(?:\s{0,20}error_file\s{0,12}: [^\n]{0,2000}\n)?"
    r"(?:\s{0,20}(?:traceback|msg)\s{0,12}: (?P<trace>[^\n]{0,2000}(?:\n[ \t]{2,}[^\n]{1,2000}){0,400}))?)?"
)
_HOST = re.compile(r"host\s{0,12}: ([\w.:-]{1,200})\s")
_ROOT = re.compile(r"Root Cause")
_FAILED = re.compile(
    r"failed \(exit_?code: (?P<code>-?\d{1,6})\)\s{1,3}(?:local_rank: (?P<local>\d{1,6}) \(pid: (?P<pid>\d{1,10})\)|.{0,40}?pid: (?P<other>\d{1,10}))"
)
_CLOSED = re.compile(r"(?:Sending|Closing) process (\d{1,10}) (?:closing|via) signal (SIG[A-Z0-9]{2,8})")
_SHELL = re.compile(r"line \d{1,6}:\s{1,8}(\d{1,10}) (Killed|Terminated|Segmentation fault|Aborted|Bus error)\s")
_LAUNCH = (
    re.compile(r"exits with return code = \d{1,4}"),
    re.compile(r"returned non-zero exit status \d{1,4}"),
)
_KILLED = re.compile(r"exits with return code = (-\d{1,3})\b")
_WORKER = re.compile(r"pid (\d{1,10}) died, exit code: (-?\d{1,6})\b")
#: Ray, of the process of an actor
_ACTOR = (
    re.compile(
        r"Worker IP address: (?P<ip>[\w.:]{1,64}) Worker port: \d{1,6} Worker PID: (?P<pid>\d{1,10}) Worker exit type: "
        r"(?:SYSTEM_ERROR|NODE_OUT_OF_MEMORY)"
    ),
    re.compile(
        r"actor_id: \w{1,80}\n\s{0,20}pid: (?P<pid>\d{1,10})\n(?:[^\n]{0,300}\n){0,3}?\s{0,20}ip: (?P<ip>[\w.:]{1,64})"
    ),
)
_DIED = re.compile(r"died with <Signals\.\w{1,20}: (\d{1,3})>")
_SPAWNED = re.compile(r"rocess (\d{1,6}) terminated with (?:signal (\w{1,20})|exit code (\d{1,6}))")
_SRUN = re.compile(
    r"srun: error: (?P<host>[\w.\[\],-]{1,200}): tasks? (?P<tasks>[\d,\-\[\] ]{1,2000}):\s{1,3}"
    r"(?P<how>Killed|Terminated|Out Of Memory|Segmentation fault|Aborted|Bus error|Exited with exit code (?P<code>\d{1,3}))"
)
_OUT_OF_MEMORY = re.compile(r"slurmstepd: error: Detected \d{1,9} oom[_-]kill event[^\n]{0,300}")
_TIME_LIMIT = re.compile(r"slurmstepd: error: \*{3} [^\n]{0,200}? DUE TO TIME LIMIT[^\n]{0,60}")
_MPIRUN = re.compile(
    r" process rank (\d{1,6}) with PID (\d{1,10}) on node ([\w.-]{1,200})\s{1,3}"
    r"exited on\s{1,3}signal (\d{1,3})"
)
_MPI_STATUS = re.compile(r"Process name: \[[^\]\n]{1,80},\s{0,2}(\d{1,6})\]\s{1,8}Exit code:\s{1,8}(-?\d{1,6})")
# One pattern for each word: a search for plain text is fast.
_WORLD = tuple(
    re.compile(pattern)
    for pattern in (
        r"WORLD_SIZE(?<!\w.{10})(?: is|=|: )\s{0,3}(\d{1,6})\b",
        r"world_size(?<!\w.{10})(?:=|: |\s{1,3}: |=\[)\s{0,3}(\d{1,6})\b",
        r"dist_world_size=(\d{1,6})\b",
    )
)
_GLOBAL = re.compile(r"global_world_sizes=\[(\d{1,6})[,\]]")
_NAMED_SIGNALS = {
    "Killed": signal.SIGKILL,
    "Out Of Memory": signal.SIGKILL,
    "Terminated": signal.SIGTERM,
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
}


def read(log: Log) -> Iterator[Fact]:
    """How processes ended, which of them the launcher calls the first, and the world size where it is said."""
    text = log.text
    facts = [*_tables(text), *_lines(log)]
    yield from {repr(fact): fact for fact in facts}.values()  # a log may repeat its end
    sizes = {int(match[1]) for pattern in (*_WORLD, _GLOBAL) for match in pattern.finditer(text)}
    if len(sizes) == 1 and 0 < min(sizes) <= 1_000_000:
        yield WorldSize(sizes.pop())


def _tables(text: str) -> Iterator[Fact]:
    """torchrun's failure table: other failures first, then the root cause, which is the first that it observed."""
    rows = list(_ROW.finditer(text))
    begins = [row.start() for row in rows]
    roots = {bisect_right(begins, match.end()) for match in _ROOT.finditer(text)}
    for turn, row in enumerate(rows):
        rank, pid = int(row["rank"]), int(row["pid"])
        host = last_match(_HOST, text, row.start() - 300, row.start())
        speaker = Speaker(rank, pid, host[1] if host else "")
        yield Identity(speaker)
        if row["code"] != "<N/A>":
            yield Ended(speaker, _ending(int(row["code"]), row["trace"] or ""), root=turn in roots)


def _ending(code: int, trace: str = "") -> Ending:
    shown = "" if trace.startswith(("Signal ", "To enable traceback")) else trace.strip()
    if code < 0:
        return Ending("died", code, message=shown)
    if code >= 128 and code - 128 in {int(number) for number in signal.Signals}:
        return Ending("died", 128 - code, message=shown)  # as a shell gives a signal
    if code and (errors := tracebacks.read(textwrap.dedent("  " + trace) if trace.startswith("Traceback") else "")):
        last = errors[-1]
        return Ending("raised", code, last.exception.rpartition(".")[2], last.message, last.frames, shown)
    return Ending("exited" if code else "finished", code)


def _lines(log: Log) -> Iterator[Fact]:
    text = log.text
    for match in _FAILED.finditer(text):
        pid = int(match["pid"] or match["other"])
        yield Ended(Speaker(None, pid), _with_line(_ending(int(match["code"])), match[0]), root=True)
    for match in _SPAWNED.finditer(text):
        yield Ended(Speaker(int(match[1])), _ending(int(match[3])) if match[3] else _killed(match[2]), root=True)
    for match in _CLOSED.finditer(text):
        yield Ended(Speaker(None, int(match[1])), _killed(match[2]))
    for match in _SHELL.finditer(text):
        yield Ended(Speaker(None, int(match[1])), Ending("died", -_NAMED_SIGNALS[match[2]]))
    for match in _WORKER.finditer(text):
        yield Ended(Speaker(None, int(match[1])), _with_line(_ending(int(match[2])), match[0]))
    for match in (match for pattern in _ACTOR for match in pattern.finditer(text)):
        ending = Ending("ended", UNKNOWN_STATUS, message=f"pid {match['pid']}, ip {match['ip']}")
        yield Ended(Speaker(None, int(match["pid"]), given_name(match["ip"])), ending)
    yield from _tasks(log)
    for match in _MPIRUN.finditer(text):
        speaker = Speaker(int(match[1]), int(match[2]), match[3])
        yield Identity(speaker)
        yield Ended(speaker, Ending("died", -int(match[4])), root=True)
    for match in _MPI_STATUS.finditer(text):
        yield Ended(Speaker(int(match[1])), _ending(int(match[2])), root=True)
    for match in _KILLED.finditer(text):
        yield Ended(Speaker(), _with_line(Ending("died", int(match[1])), match[0]))
    for match in _DIED.finditer(text):
        yield Ended(Speaker(), _with_line(Ending("died", -int(match[1])), match[0]))
    for pattern in (_OUT_OF_MEMORY, _TIME_LIMIT, *_LAUNCH):
        for match in pattern.finditer(text):
            yield Message(log.speaker_at(match.start()), match[0].strip())


def _with_line(ending: Ending, line: str) -> Ending:
    """The ending with the line that says it, where there is no other message: it may name the local rank and the process."""
    return ending if ending.message else replace(ending, message=" ".join(line.split())[:300])


def _killed(name: str) -> Ending:
    try:
        return Ending("died", -signal.Signals[name])
    except KeyError:
        return Ending("died", UNKNOWN_SIGNAL)


def _tasks(log: Log) -> Iterator[Fact]:
    """srun's tasks: they are the ranks, but where each of them is a launcher again."""
    launchers = "torchrun" in log.text or "elastic" in log.text
    root = True
    for match in _SRUN.finditer(log.text):
        if launchers:
            yield Message(Speaker(host=given_name(match["host"])), match[0])
            continue
        how = match["how"]
        ending = _ending(int(match["code"])) if match["code"] else Ending("died", -_NAMED_SIGNALS[how], message=how)
        for task in _numbers(match["tasks"]):
            yield Ended(Speaker(task, host=given_name(match["host"])), ending, root and how != "Terminated")
        root = root and how == "Terminated"  # srun ends the others after the first


def _numbers(text: str) -> list[int]:
    """``3``, ``1-3``, ``0,2-4``."""
    numbers: list[int] = []
    for part in re.findall(r"\d{1,6}(?:-\d{1,6})?", text)[:1000]:
        first, _, last = part.partition("-")
        numbers += range(int(first), min(int(last or first), int(first) + 100_000) + 1)
    return numbers
