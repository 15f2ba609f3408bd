"""What launchers say of the processes that they started: torchrun, accelerate, DeepSpeed, mp.spawn, srun, mpirun."""

from __future__ import annotations

import re
import signal
import textwrap
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from ddpnb.recording.ending import UNKNOWN_SIGNAL, UNKNOWN_STATUS, Ending
from ddpnb.recording.messages import tracebacks
from ddpnb.recording.names import given_name
from ddpnb.reports import outside
from ddpnb.reports.facts import NOBODY, Ended, Fact, Identity, Message, Speaker, WorldSize
from ddpnb.reports.logs import Log, last_match

NAME = "launcher's log"
MARKS = (
    "local_rank", "exitcode", "ChildFailedError", "Root Cause", "terminated with", "srun:", "slurmstepd", "closing signal", "via signal",
    "world_rank", "GLOBAL_RANK", "subprocess", "mpirun", "prterun", "world_size", "exit code", "nnodes", "return code", "Worker exit type", "actor_id",
    *outside.MARKS,
)  # fmt: skip

_ROW = re.compile(
    r"rank\s{0,12}: (?P<rank>\d{1,6}) \(local_rank: (?P<local>-?\d{1,6})\)\s{1,20}"
    r"exit_?code\s{0,12}: (?P<code>-?\d{1,6}|<N/A>) \(pid: (?P<pid>\d{1,10})\)(?:[^\n]{0,60}\n"
    r"(?:\s{0,20}error_file\s{0,12}: [^\n]{0,2000}\n)?"
    r"(?:\s{0,20}(?:traceback|msg)\s{0,12}: "
    r"(?P<trace>[^\n]{0,2000}(?:\n(?!\s{0,20}(?:\[\d{1,6}\]:|-----|=====))[ \t]{2,}[^\n]{1,2000}){0,400}))?)?"
)
_HOST = re.compile(r"host\s{0,12}: ([\w.:-]{1,200})\s")
_TIME = re.compile(r"time\s{0,12}: (\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d)")
_ROOT = re.compile(r"Root Cause")
_SRUN = re.compile(
    r"srun: error: (?P<host>[\w.\[\],-]{1,200}): tasks? (?P<tasks>[\d,\-\[\] ]{1,2000}):\s{1,3}"
    r"(?P<how>Killed|Terminated|Out Of Memory|Segmentation fault|Aborted|Bus error|Exited with exit code (?P<code>\d{1,3}))"
)
# One pattern for each word: a search for plain text is fast.
_WORLD = tuple(
    re.compile(pattern)
    for pattern in (
        r"WORLD_SIZE(?<!\w.{10})(?: is|=|: )\s{0,3}(\d{1,6})\b",
        r"world_size(?<!\w.{10})(?:=|: |\s{1,3}: |=\[)\s{0,3}(\d{1,6})\b",
        r"dist_world_size=(\d{1,6})\b",
    )
)
#: Ray Train's list of its workers
_WORKER = re.compile(
    r"\((?:node_id=\w{1,80}, )?ip=(?P<ip>[\w.:]{1,64}), pid=(?P<pid>\d{1,10})\) world_rank=(?P<rank>\d{1,6}), local_rank="
)
#: Lightning's processes before they meet, and after it
_MEMBER = re.compile(r"(?i:initializing (?:ddp|distributed)): GLOBAL_RANK: (\d{1,6}), MEMBER: \d{1,6}/(\d{1,6})")
_MET = re.compile(r"All (?:DDP|distributed) processes registered|\bEpoch \d|\d%\||\bloss\b")
_GLOBAL = re.compile(r"global_world_sizes=\[(\d{1,6})[,\]]")
_NAMED_SIGNALS = {
    "Killed": signal.SIGKILL,
    "Out Of Memory": signal.SIGKILL,
    "Terminated": signal.SIGTERM,
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
}
#: lines about the end of a process: rank, pid, host (or ip); its code, the name or the number of its signal, or the words for it;
#: whether it is the first that the launcher observed, and whether the line is shown where there is no other message
_ENDS = tuple(
    (re.compile(pattern), root, shown)
    for pattern, root, shown in (
        (r"failed \(exit_?code: (?P<code>-?\d{1,6})\)\s{1,3}(?:local_rank: \d{1,6} \(pid: (?P<pid>\d{1,10})\)"
         r"|.{0,40}?pid: (?P<pid2>\d{1,10}))", True, True),
        (r"rocess (?P<rank>\d{1,6}) terminated with (?:signal (?P<signal>\w{1,20})|exit code (?P<code>\d{1,6}))", True, False),
        # Lightning: its prefix names the rank of the child
        (r"(?P<prefixed>)\bChild process with PID (?P<pid>\d{1,10}) terminated with code (?P<code>-?\d{1,6})\b", True, False),
        (r"(?:Sending|Closing) process (?P<pid>\d{1,10}) (?:closing|via) signal (?P<signal>SIG[A-Z0-9]{2,8})", False, False),
        (r"line \d{1,6}:\s{1,8}(?P<pid>\d{1,10}) (?P<how>Killed|Terminated|Segmentation fault|Aborted|Bus error)\s", False, False),
        (r"pid (?P<pid>\d{1,10}) died, exit code: (?P<code>-?\d{1,6})\b", False, True),
        # Ray, of the process of an actor
        (r"Worker IP address: (?P<ip>[\w.:]{1,64}) Worker port: \d{1,6} Worker PID: (?P<pid>\d{1,10}) Worker exit type: "
         r"(?:SYSTEM_ERROR|NODE_OUT_OF_MEMORY)", False, False),
        (r"actor_id: \w{1,80}\n\s{0,20}pid: (?P<pid>\d{1,10})\n(?:[^\n]{0,300}\n){0,3}?\s{0,20}ip: (?P<ip>[\w.:]{1,64})", False, False),
        # mpirun
        (r" process rank (?P<rank>\d{1,6}) with PID (?P<pid>\d{1,10}) on node (?P<host>[\w.-]{1,200})\s{1,3}"
         r"exited on\s{1,3}signal (?P<number>\d{1,3})", True, False),
        (r"Process name: \[[^\]\n]{1,80},\s{0,2}(?P<rank>\d{1,6})\]\s{1,8}Exit code:\s{1,8}(?P<code>-?\d{1,6})", True, False),
        # DeepSpeed, accelerate
        (r"exits with return code = -(?P<number>\d{1,3})\b", False, True),
        (r"died with <Signals\.\w{1,20}: (?P<number>\d{1,3})>", False, True),
    )
)  # fmt: skip
#: of a job, whatever its processes did
_OF_JOB = tuple(
    map(
        re.compile,
        (
            r"slurmstepd: error: Detected \d{1,9} oom[_-]kill event[^\n]{0,300}",
            r"exits with return code = \d{1,4}",
            r"returned non-zero exit status \d{1,4}",
        ),
    )
)


_MOST_MEMBERS = 1 << 16


def read(log: Log) -> Iterator[Fact]:
    """How processes ended, which of them the launcher calls the first, and the world size where it is said."""
    text = log.text
    facts = [*_tables(log), *_lines(log)]
    yield from {repr(fact): fact for fact in facts}.values()  # a log may repeat its end
    yield from outside.read(log)
    for match in _WORKER.finditer(text):
        yield Identity(Speaker(int(match["rank"]), int(match["pid"]), given_name(match["ip"])))
    yield from _members(log)
    sizes = {int(match[1]) for pattern in (*_WORLD, _GLOBAL) for match in pattern.finditer(text)}
    if len(sizes) == 1 and 0 < min(sizes) <= 1_000_000:
        yield WorldSize(sizes.pop())


def _members(log: Log) -> Iterator[Fact]:
    """Lightning's processes that wait for the others: ranks that two of them claim, and those that none does."""
    found = list(_MEMBER.finditer(log.text))
    # A logger may write a line in two forms.
    counts = Counter((int(match[1]), log.line(log.line_at(match.start())).strip()) for match in found)
    present, sizes = {rank for rank, _ in counts}, {int(match[2]) for match in found}
    # The process of rank 0 says that all have come; the log of another node does not.
    if 0 not in present or len(sizes) != 1 or max(sizes) > _MOST_MEMBERS or _MET.search(log.text, found[0].end()):
        return
    absent = [rank for rank in range(max(sizes)) if rank not in present]
    if absent:
        yield WorldSize(max(sizes))
        twice = [rank for (rank, _), count in counts.items() if count > 1]
        said = f"{_listed(twice)} were claimed by two processes, " if twice else ""
        text = f"Of ranks 0 to {max(sizes) - 1}, {said}{_listed(absent)} by none that wrote to this log"
        yield Message(NOBODY, text, log.quoted(found[-1].start()))


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, sorted(ranks)[:32])) + (" and more" if len(ranks) > 32 else "")


def _tables(log: Log) -> Iterator[Fact]:
    """torchrun's failure table: other failures first, then the root cause, which is the first that it observed."""
    text = log.text
    rows = list(_ROW.finditer(text))
    begins = [row.start() for row in rows]
    roots = {bisect_right(begins, match.end()) for match in _ROOT.finditer(text)}
    for turn, row in enumerate(rows):
        rank, pid = int(row["rank"]), int(row["pid"])
        host = last_match(_HOST, text, row.start() - 300, row.start())
        speaker = Speaker(rank, pid, host[1] if host else "")
        yield Identity(speaker)
        if row["code"] != "<N/A>":
            time = last_match(_TIME, text, row.start() - 400, row.start())
            yield Ended(
                speaker,
                _ending(int(row["code"]), row["trace"] or ""),
                turn in roots,
                log.quoted(row.start("code") - 12, row.end("pid") + 1),
                clock_s=_seconds(time[1]) if time else 0.0,
                table=True,
            )


def _seconds(time: str) -> float:
    try:
        return datetime.strptime(time, "%Y-%m-%d_%H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


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
    for pattern, root, shown in _ENDS:
        for match in pattern.finditer(log.text):
            said = match.groupdict()
            rank = log.speaker_at(match.start()).rank if "prefixed" in said else said.get("rank")
            pid = said.get("pid") or said.get("pid2")
            host = said.get("host") or given_name(said.get("ip") or "")
            speaker = Speaker(int(rank) if rank is not None else None, int(pid or 0), host)
            if rank is not None and pid:
                yield Identity(speaker)
            ending = _with_line(_said(said), match[0]) if shown else _said(said)
            yield Ended(speaker, ending, root, log.quoted(match.start()))
    yield from _tasks(log)
    for pattern in _OF_JOB:
        for match in pattern.finditer(log.text):
            yield Message(log.speaker_at(match.start()), match[0].strip(), log.quoted(match.start()))


def _said(said: Mapping[str, str | None]) -> Ending:
    """How a process ended, by the groups of a pattern of ``_ENDS``."""
    if code := said.get("code"):
        return _ending(int(code))
    if number := said.get("number"):
        return Ending("died", -int(number))
    if how := said.get("how"):
        return Ending("died", -_NAMED_SIGNALS[how])
    if name := said.get("signal"):
        return Ending("died", -signal.Signals[name] if name in signal.Signals.__members__ else UNKNOWN_SIGNAL)
    return Ending("ended", UNKNOWN_STATUS, message=f"pid {said['pid']}, ip {said['ip']}")


def _with_line(ending: Ending, line: str) -> Ending:
    """The ending with the line that says it, where there is no other message: it may name the local rank and the process."""
    return ending if ending.message else replace(ending, message=" ".join(line.split())[:300])


def _tasks(log: Log) -> Iterator[Fact]:
    """srun's tasks: they are the ranks, but where each of them is a launcher again."""
    launchers = "torchrun" in log.text or "elastic" in log.text
    root = True
    for match in _SRUN.finditer(log.text):
        if launchers:
            yield Message(Speaker(host=given_name(match["host"])), match[0], log.quoted(match.start()))
            continue
        how = match["how"]
        ending = _ending(int(match["code"])) if match["code"] else Ending("died", -_NAMED_SIGNALS[how], message=how)
        for task in _numbers(match["tasks"]):
            speaker = Speaker(task, host=given_name(match["host"]))
            yield Ended(speaker, ending, root and how != "Terminated", log.quoted(match.start()))
        root = root and how == "Terminated"  # srun ends the others after the first


def _numbers(text: str) -> list[int]:
    """``3``, ``1-3``, ``0,2-4``."""
    numbers: list[int] = []
    for part in re.findall(r"\d{1,6}(?:-\d{1,6})?", text)[:1000]:
        first, _, last = part.partition("-")
        numbers += range(int(first), min(int(last or first), int(first) + 100_000) + 1)
    return numbers
