"""NCCL's own log (``NCCL_DEBUG=INFO``): which communicators there are, and which operation each rank enqueued last.

NCCL writes a line when an operation is enqueued, so a rank may have continued after its last one. ``opCount`` counts, from 0
and in hexadecimal, the operations that a communicator launched: ranks that made the same calls have the same. ``seq`` is that
number plus 1. Operations with one opCount were launched as a group: they are one call here.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ddpnb.recording.calls import UNNAMED, CallState, Signature
from ddpnb.recording.messages.explain import explain
from ddpnb.recording.names import given_name
from ddpnb.reports.facts import (
    NOBODY,
    CallSeen,
    Fact,
    GroupName,
    Identity,
    Members,
    Message,
    Speaker,
    Unknown,
    Waiting,
    WorldSize,
)
from ddpnb.reports.logs import Log, last_match
from ddpnb.reports.operations import operation

NAME = "NCCL debug log"
MARKS = ("NCCL INFO", "NCCL WARN", "NCCL DIAG")

_WHO = re.compile(r"(?<![\w.-])([A-Za-z0-9][\w.-]{0,120}):(\d{1,10}):\d{1,10} \[(\d{1,4})\]")
_OPERATION = re.compile(
    r"NCCL INFO\s([A-Za-z]{2,24}):\sopCount\s([0-9a-f]{1,16})\ssendbuff\s\S{1,24}\srecvbuff\s\S{1,24}\scount\s(\d{1,19})\s"
    r"datatype\s(\d{1,4})\sop\s(\d{1,10})\sroot\s(-?\d{1,7})\scomm\s(0x[0-9a-f]{1,16})\s\[nranks=(\d{1,7})\]"
    r"(?:\sstream\s\S{1,24}(?:\stask\s\d{1,7})?(?:\sglobalrank\s(\d{1,7}))?)?"
)
_INIT = re.compile(
    r"NCCL INFO\s(?:\[Rank \d{1,7}\]\s)?(?:(\w{1,40})\s)?comm\s(0x[0-9a-f]{1,16})\srank\s(\d{1,7})\sn[rR]anks\s(\d{1,7})\s"
    r"([^\n]{0,300}?)-\s?Init\s(START|COMPLETE)"
)
_COMM_ID = re.compile(r"commId\s(0x[0-9a-f]{1,16})")
_PARENT = re.compile(r"parent\s(0x[0-9a-f]{1,16})\s(?:(?:split|child)Count\s(\d{1,9})\s)?color\s(-?\d{1,12})")
_WARN = re.compile(r"NCCL WARN [^\n]{1,1000}")
#: NCCL_RUN_DIAGNOSTICS, NCCL_RUN_RAS_DIAGNOSTICS and ``ncclras -D`` (NCCL 2.31 and later)
_DIAGNOSIS = re.compile(r"NCCL DIAG \[(OK|INFO)\] {0,4}([^\n]{1,1000})")
#: warnings of calls that failed, whatever the reason: in the network, and on the device
_FAILED = re.compile(
    r"Got completion from peer|Call to (?:recv|send|ibv_modify_qp|ibv_create_qp)\b[^\n]{0,200} failed"
    r"|Cuda failure (?:\d{1,4} )?'(?:device-side assert|an illegal memory|unspecified launch|uncorrectable ECC|misaligned)"
)
_FEW = 3  # of these: one failure is followed by many
_DTYPES = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16", "float8_e4m3fn",
    "float8_e5m2",
)  # fmt: skip
_REDUCES = ("sum", "product", "max", "min", "avg")
_REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter"})
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
_MOST_WARNINGS, _MOST_NOTES = 1000, 20

_ENQUEUED = (
    "NCCL's log says what each rank enqueued, not what it finished: a rank may have continued after its last line. "
    "TORCH_FR_BUFFER_SIZE=2000 with TORCH_NCCL_DUMP_ON_TIMEOUT=1 makes torch write what each rank finished."
)
_NO_CALLS = (
    "NCCL's log has no operations: set NCCL_DEBUG_SUBSYS=INIT,COLL together with NCCL_DEBUG=INFO to see which call each rank "
    "enqueued last."
)

_DEVICES = (
    "The log does not say which process is which rank: the number of its GPU is taken, which is right for a job on one machine with "
    "one process for each GPU. "
    "NCCL_DEBUG=INFO set before the start writes it."
)
_MOST = 1024  # last calls of a rank in a communicator
_OF_ONE_HOST = 8  # GPUs of a machine: a job with more ranks has other machines, whose GPUs have the same numbers
_MOST_RANKS = 1 << 17

Common = tuple[object, ...]  # what a communicator has alike in all processes


@dataclass(slots=True)
class _Operations:
    """The operations of a rank with one opCount."""

    count: int
    op: str
    elements: int
    dtype: int
    reduce: int
    root: int
    sends: int = 0
    several: bool = False


@dataclass(slots=True, eq=False)
class _Process:
    """A process of the log, with its communicators by their addresses."""

    host: str
    pid: int
    device: int
    rank: int | None = None
    held: dict[str, _Communicator] = field(default_factory=dict[str, "_Communicator"])

    @property
    def speaker(self) -> Speaker:
        return Speaker(self.rank, self.pid, self.host)


@dataclass(slots=True, eq=False)
class _Communicator:
    """A communicator in one process."""

    process: _Process
    rank: int = -1
    size: int = 0
    common: Common = ()
    started: bool = False
    completed: bool = False
    calls: deque[_Operations] = field(default_factory=lambda: deque[_Operations](maxlen=_MOST))


def read(log: Log) -> Iterator[Fact]:
    """Which process is which rank, the members of communicators, and the last operations of each rank in them."""
    processes = _Processes(log)
    found = [process for process in processes.found.values() if process.held]
    alike: dict[Common, list[_Communicator]] = {}
    for process in found:
        for own in process.held.values():
            alike.setdefault(own.common, []).append(own)
    world = _world(alike, found)
    if world is not None:
        yield WorldSize(alike[world][0].size)
        for own in alike[world]:
            own.process.rank = own.rank
    elif _number_by_devices(found, list(processes.found.values())):
        yield Unknown(_DEVICES)
    for process in processes.found.values():
        if process.rank is not None:
            yield Identity(process.speaker)
    groups = {
        common: GroupName(ranks=tuple(range(min(members[0].size, _MOST_RANKS))))
        if common == world
        else _group(common, members, alone=len(alike) == 1)
        for common, members in alike.items()
    }
    yield from (Members(group) for group in groups.values() if group.ranks)
    for common, group in groups.items():
        if len(processes.found) > 1:
            yield from _waiting(alike[common], group)
    every = [own for process in found for own in process.held.values() if own.calls]
    for own in every:
        yield from _calls(own, groups[own.common])
    yield from _warnings(log, processes)
    yield from _diagnostics(log.text)
    if processes.found:
        yield Unknown(_ENQUEUED if every else _NO_CALLS)


class _Processes:
    """The processes that a log names, with what it says of their communicators."""

    def __init__(self, log: Log) -> None:
        self.found: dict[tuple[str, int], _Process] = {}
        self._log = log
        self._read_init()
        self._read_operations()

    def at(self, offset: int) -> _Process | None:
        """The process that wrote what is at this offset: by the nearest ``host:pid:thread`` before it."""
        text = self._log.text
        who = last_match(_WHO, text, max(text.rfind("\n", max(offset - 300, 0), offset) + 1, offset - 300), offset)
        if who is None:
            return None
        host, pid = given_name(who[1]), int(who[2])
        if (host, pid) not in self.found:
            self.found[host, pid] = _Process(host, pid, int(who[3]), self._log.speaker_at(offset).rank)
        return self.found[host, pid]

    def _read_init(self) -> None:
        counted: dict[tuple[_Process, Common], int] = {}
        for match in _INIT.finditer(self._log.text):
            process = self.at(match.start())
            if process is None:
                continue
            new = match[2] not in process.held
            own = process.held.setdefault(match[2], _Communicator(process))
            own.rank, own.size = int(match[3]), int(match[4])
            own.started |= match[6] == "START"
            own.completed |= match[6] == "COMPLETE"
            if new:
                own.common = _common(process, match, counted)

    def _read_operations(self) -> None:
        for match in _OPERATION.finditer(self._log.text):
            process = self.at(match.start())
            if process is None:
                continue
            own = process.held.setdefault(match[7], _Communicator(process))
            own.size = own.size or int(match[8])
            own.common = own.common or ("size", own.size, "unnamed")  # the log begins after its start
            if match[9] is not None:
                process.rank = int(match[9])
            _add(own.calls, match)


def _common(process: _Process, match: re.Match[str], counted: dict[tuple[_Process, Common], int]) -> Common:
    """The id of a communicator, or from which other one it was split, or its turn."""
    size, rest = int(match[4]), match[5]
    if named := _COMM_ID.search(rest):
        return "id", named[1]
    base: Common = ("size", size)
    if (split := _PARENT.search(rest)) and split[1] in process.held:
        base = ("split", *process.held[split[1]].common, split[2], split[3], size)
    turn = counted[process, base] = counted.get((process, base), -1) + 1
    return *base, turn


def _add(calls: deque[_Operations], match: re.Match[str]) -> None:
    count, op, root = int(match[2], 16), operation(match[1]), int(match[6])
    if not calls or calls[-1].count != count:
        calls.append(_Operations(count, op, int(match[3]), int(match[4]), int(match[5]), root))
    elif (calls[-1].op, calls[-1].root) != (op, root):
        calls[-1].several = True
    calls[-1].sends += op == "send"


def _world(alike: dict[Common, list[_Communicator]], processes: list[_Process]) -> Common | None:
    """The communicator of all processes of the log: the first of the largest, if none is beside it."""
    largest = max((members[0].size for members in alike.values()), default=0)
    for common, members in alike.items():
        ranks = [own.rank for own in members]
        if members[0].size == largest and len({own.process for own in members}) == len(processes):
            agree = all(own.process.rank in (None, own.rank) for own in members)
            if min(ranks) >= 0 and len(set(ranks)) == len(ranks) and agree:
                return common
    return None


def _number_by_devices(processes: list[_Process], every: list[_Process]) -> bool:
    """The end of a log, without the start of its communicators: on one machine ranks have the numbers of their GPUs."""
    devices = [process.device for process in processes]
    sizes = {own.size for process in processes for own in process.held.values()}
    hosts = {process.host for process in every}
    numbered = any(process.rank is not None for process in every)
    if numbered or len(hosts) != 1 or len(sizes) != 1 or max(devices) >= max(sizes) or max(sizes) > _OF_ONE_HOST:
        return False
    for process in processes:
        process.rank = process.device
    return len(set(devices)) == len(devices)


def _group(common: Common, members: list[_Communicator], *, alone: bool) -> GroupName:
    """The group that uses a communicator. ``alone``: there is no other one."""
    if alone and common[-1] == "unnamed":
        return GroupName()
    size = members[0].size
    name = given_name(common[1] if common[0] == "id" else "-".join(map(str, common)))
    places = {own.rank: own.process.rank for own in members if own.process.rank is not None and own.rank >= 0}
    known = size == len(places) and set(places) == set(range(size))
    ranks = tuple(places[place] for place in range(size)) if known else ()
    return GroupName(f"nccl {name}", f"NCCL communicator {name}", ranks=ranks)


def _calls(own: _Communicator, group: GroupName) -> Iterator[CallSeen]:
    speaker, named = own.process.speaker, replace(group, rank=own.rank)
    for call in own.calls:
        if call.op in ("send", "recv") and not call.several:
            peer = group.ranks[call.root] if 0 <= call.root < len(group.ranks) else -1
            yield CallSeen(speaker, named, 0, _signature(call), CallState.ISSUED, peer=peer)
        elif call.op not in ("send", "recv") or call.sends >= own.size - 1 > 1:
            yield CallSeen(speaker, named, call.count + 1, _signature(call), CallState.ISSUED)


def _signature(call: _Operations) -> Signature:
    if call.several and call.op in ("send", "recv"):
        return Signature("all_to_all", device="cuda")  # torch makes it of sends and receives
    return Signature(
        call.op,
        ((call.elements,),),
        (_DTYPES[call.dtype] if call.dtype < len(_DTYPES) else f"type {call.dtype}",),
        reduce_op=_REDUCES[call.reduce] if call.op in _REDUCING and call.reduce < len(_REDUCES) else None,
        root=call.root if call.op in _ROOTED and not call.several else None,
        device="cuda",
    )


def _waiting(members: list[_Communicator], group: GroupName) -> Iterator[Fact]:
    """Ranks that wait for others while a communicator is created, as far as the log has several ranks."""
    present = {own.rank for own in members}
    absent = len(present) < members[0].size  # the log does not say what those did of which it has no line
    for own in members:
        if absent and own.started and not own.completed:
            yield Waiting(own.process.speaker, "ncclCommInitRank")
            if not own.calls:
                # All ranks of a group create its communicator, at the latest in its first collective.
                unnamed = Signature(UNNAMED, device="cuda")
                yield CallSeen(own.process.speaker, replace(group, rank=own.rank), 1, unnamed, CallState.WAITING)


def _diagnostics(text: str) -> Iterator[Fact]:
    """NCCL's own checks of GPUs and links: broken ones are errors, differences are something to look at."""
    lines = dict.fromkeys((match[1], match[0].strip()) for match in _DIAGNOSIS.finditer(text))
    wrong = [line for state, line in lines if state != "OK"][:_MOST_WARNINGS]
    for line in wrong:
        if explain(line) is not None:
            yield Message(NOBODY, line)
    noted = [line for line in wrong if explain(line) is None]
    for line in noted[:_MOST_NOTES]:
        yield Unknown(f"What this means for the job: {line}")
    if lines and not wrong:
        yield Unknown(
            f"NCCL's diagnostics found nothing wrong with GPUs and links ({len(lines)} checks): look elsewhere."
        )


def _warnings(log: Log, processes: _Processes) -> Iterator[Fact]:
    """Warnings that mean an error; most do not."""
    seen: set[tuple[Speaker, str]] = set()
    failed: list[str] = []
    for number, match in enumerate(_WARN.finditer(log.text)):
        if number >= _MOST_WARNINGS:
            return
        text = match[0].strip()
        process = processes.at(match.start())
        speaker = process.speaker if process is not None else log.speaker_at(match.start())
        if (speaker, text) in seen:
            continue
        seen.add((speaker, text))
        if explain(text) is not None:
            yield Message(speaker, text)
        elif len(failed) < _FEW and _FAILED.search(text) and text not in failed:
            failed.append(text)
            yield Message(NOBODY, text)  # it may follow from the failure of another rank: it blames none
