"""NCCL's own log (``NCCL_DEBUG=INFO``): which communicators there are, and which operation each rank enqueued last.

NCCL writes a line when an operation is enqueued, so a rank may have continued after its last one. ``opCount`` counts, from 0
and in hexadecimal, the operations that a communicator launched: ranks that made the same calls have the same. ``seq`` is that
number plus 1. Operations with one opCount were launched as a group: they are one call here.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from ddpnb.explanations.messages.explain import explain
from ddpnb.model.calls import UNNAMED, CallState, Signature
from ddpnb.model.names import given_name
from ddpnb.reports.facts import (
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
MARKS = ("NCCL INFO", "NCCL WARN")

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
_DTYPES = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16", "float8_e4m3fn",
    "float8_e5m2",
)  # fmt: skip
_REDUCES = ("sum", "product", "max", "min", "avg")
_REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter"})
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
_MOST = 1024  # last calls of a rank in a communicator
_MOST_WARNINGS = 1000

_ENQUEUED = (
    "NCCL's log says what each rank enqueued, not what it finished: a rank may have continued after its last line. "
    "TORCH_FR_BUFFER_SIZE=2000 with TORCH_NCCL_DUMP_ON_TIMEOUT=1 makes torch write what each rank finished."
)
_NO_CALLS = (
    "NCCL's log has no operations: set NCCL_DEBUG_SUBSYS=INIT,COLL together with NCCL_DEBUG=INFO to see which call each rank "
    "enqueued last."
)

_OF_ONE_HOST = 8  # GPUs of a machine: a job with more ranks has other machines, whose GPUs have the same numbers
_DEVICES = (
    "The log does not say which process is which rank: the number of its GPU is taken, which is right for a job on one machine with "
    "one process for each GPU. "
    "NCCL_DEBUG=INFO set before the start writes it."
)

_Process = tuple[str, int]


@dataclass(slots=True)
class _Call:
    """The operations of a rank with one opCount."""

    count: int
    op: str
    elements: int
    dtype: int
    reduce: int
    root: int
    sends: int = 0
    several: bool = False


@dataclass(slots=True)
class _Communicator:
    """A communicator in one process."""

    rank: int = -1
    size: int = 0
    identity: tuple[object, ...] = ()
    started: bool = False
    completed: bool = False
    calls: deque[_Call] = field(default_factory=lambda: deque[_Call](maxlen=_MOST))


@dataclass
class _State:
    """What the log says of all processes, and which process is which rank."""

    processes: dict[_Process, dict[str, _Communicator]] = field(
        default_factory=dict[_Process, dict[str, _Communicator]]
    )
    ranks: dict[_Process, int] = field(default_factory=dict[_Process, int])
    devices: dict[_Process, int] = field(default_factory=dict[_Process, int])

    def of(self, process: _Process, address: str) -> _Communicator:
        return self.processes.setdefault(process, {}).setdefault(address, _Communicator())

    def speaker(self, process: _Process) -> Speaker:
        return Speaker(self.ranks.get(process), process[1], process[0])


def read(log: Log) -> Iterator[Fact]:
    """Which process is which rank, the members of communicators, and the last operations of each rank in them."""
    state = _State()
    _read_init(log, state)
    _read_operations(log, state)
    world = _world(state)
    if world is not None:
        size = next(iter(_members(state, world).values())).size
        state.ranks |= {process: own.rank for process, own in _members(state, world).items() if own.rank >= 0}
        yield WorldSize(size)
    elif _ranks_are_devices(state):
        yield Unknown(_DEVICES)
    for process, rank in state.ranks.items():
        yield Identity(Speaker(rank, process[1], process[0]))
    groups = {identity: _group(state, identity, identity == world) for identity in _identities(state)}
    yield from (Members(group) for group in groups.values() if group.ranks)
    yield from _waiting(state, groups)
    any_call = False
    for process, own in state.processes.items():
        for communicator in own.values():
            if communicator.calls and communicator.identity:
                any_call = True
                yield from _calls(state.speaker(process), communicator, groups[communicator.identity])
    yield from _warnings(log, state)
    if state.processes:
        yield Unknown(_ENQUEUED if any_call else _NO_CALLS)


def _process(log: Log, state: _State, offset: int) -> _Process | None:
    """The process that wrote what is at this offset: by the nearest ``host:pid:thread`` before it."""
    who = last_match(_WHO, log.text, max(log.text.rfind("\n", max(offset - 300, 0), offset) + 1, offset - 300), offset)
    if who is None:
        return None
    process = given_name(who[1]), int(who[2])
    if process not in state.processes:
        state.processes[process] = {}
        state.devices[process] = int(who[3])
        rank = log.speaker_at(offset).rank
        if rank is not None:
            state.ranks[process] = rank
    return process


def _read_init(log: Log, state: _State) -> None:
    counted: dict[tuple[_Process, object], int] = {}
    for match in _INIT.finditer(log.text):
        process = _process(log, state, match.start())
        if process is None:
            continue
        new = match[2] not in state.processes[process]
        own = state.of(process, match[2])
        own.rank, own.size = int(match[3]), int(match[4])
        own.started |= match[6] == "START"
        own.completed |= match[6] == "COMPLETE"
        if new or not own.identity:
            own.identity = _identity(state, process, match, counted)


def _identity(
    state: _State, process: _Process, match: re.Match[str], counted: dict[tuple[_Process, object], int]
) -> tuple[object, ...]:
    """What a communicator has alike in all processes: its id, or from which other one it was split, or its turn."""
    size, rest = int(match[4]), match[5]
    if named := _COMM_ID.search(rest):
        return "id", named[1]
    base: tuple[object, ...] = ("size", size)
    if (split := _PARENT.search(rest)) and split[1] in state.processes[process]:
        base = ("split", state.of(process, split[1]).identity, split[2], split[3], size)
    turn = counted[process, base] = counted.get((process, base), -1) + 1
    return *base, turn


def _read_operations(log: Log, state: _State) -> None:
    for match in _OPERATION.finditer(log.text):
        process = _process(log, state, match.start())
        if process is None:
            continue
        own = state.of(process, match[7])
        own.size = own.size or int(match[8])
        if not own.identity:
            own.identity = ("size", own.size, "unnamed")  # the log begins after its start
        if match[9] is not None:
            state.ranks[process] = int(match[9])
        _add(own.calls, match)


def _add(calls: deque[_Call], match: re.Match[str]) -> None:
    count, name = int(match[2], 16), match[1]
    op = operation(name)
    call = calls[-1] if calls and calls[-1].count == count else None
    if call is None:
        call = _Call(count, op, int(match[3]), int(match[4]), int(match[5]), int(match[6]))
        calls.append(call)
    elif (call.op, call.root) != (op, int(match[6])):
        call.several = True
    call.sends += op == "send"


def _identities(state: _State) -> list[tuple[object, ...]]:
    return list(
        dict.fromkeys(own.identity for held in state.processes.values() for own in held.values() if own.identity)
    )


def _members(state: _State, identity: tuple[object, ...]) -> dict[_Process, _Communicator]:
    return {
        process: own for process, held in state.processes.items() for own in held.values() if own.identity == identity
    }


def _world(state: _State) -> tuple[object, ...] | None:
    """The communicator of all processes of the log: the first of the largest, if none is beside it."""
    sizes = {identity: next(iter(_members(state, identity).values())).size for identity in _identities(state)}
    largest = max(sizes.values(), default=0)
    for identity, size in sizes.items():
        members = _members(state, identity)
        ranks = [own.rank for own in members.values()]
        if size == largest and len(members) == len([held for held in state.processes.values() if held]):
            contradicts = any(state.ranks.get(process, own.rank) != own.rank for process, own in members.items())
            if min(ranks) >= 0 and len(set(ranks)) == len(ranks) and not contradicts:
                return identity
    return None


def _ranks_are_devices(state: _State) -> bool:
    """The end of a log, without the start of its communicators: on one machine ranks have the numbers of their GPUs."""
    devices = {state.devices[process] for process, held in state.processes.items() if held}
    sizes = {own.size for held in state.processes.values() for own in held.values()}
    hosts = {host for host, _ in state.devices}
    if state.ranks or len(hosts) != 1 or len(sizes) != 1 or max(devices) >= max(sizes) or max(sizes) > _OF_ONE_HOST:
        return False
    state.ranks |= {process: state.devices[process] for process, held in state.processes.items() if held}
    return len(set(state.ranks.values())) == len(state.ranks)


def _group(state: _State, identity: tuple[object, ...], world: bool) -> GroupName:
    members = _members(state, identity)
    if not world and identity[-1] == "unnamed" and len(_identities(state)) == 1:
        return GroupName()  # the only one
    size = next(iter(members.values())).size
    if world:
        return GroupName(ranks=tuple(range(min(size, 1 << 17))))
    name = str(identity[1]) if identity[0] == "id" else "-".join(map(str, _flat(identity)))
    places = {
        own.rank: state.ranks[process] for process, own in members.items() if process in state.ranks and own.rank >= 0
    }
    ranks = (
        tuple(places[place] for place in range(size)) if size == len(places) and set(places) == set(range(size)) else ()
    )
    return GroupName(f"nccl {given_name(name)}", f"NCCL communicator {given_name(name)}", ranks=ranks)


def _flat(identity: object) -> Iterator[object]:
    for part in identity if isinstance(identity, tuple) else (identity,):
        yield from _flat(part) if isinstance(part, tuple) else (part,)


def _calls(speaker: Speaker, own: _Communicator, group: GroupName) -> Iterator[CallSeen]:
    named = GroupName(group.name, group.label, own.rank, group.ranks)
    for call in own.calls:
        if call.op in ("send", "recv") and not call.several:
            peer = group.ranks[call.root] if 0 <= call.root < len(group.ranks) else -1
            yield CallSeen(speaker, named, 0, _signature(call), CallState.ISSUED, peer=peer)
        elif call.op not in ("send", "recv") or call.sends >= own.size - 1 > 1:
            yield CallSeen(speaker, named, call.count + 1, _signature(call), CallState.ISSUED)


def _signature(call: _Call) -> Signature:
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


def _waiting(state: _State, groups: dict[tuple[object, ...], GroupName]) -> Iterator[Fact]:
    """Ranks that wait for others while a communicator is created, as far as the log has several ranks."""
    for identity, group in groups.items():
        members = _members(state, identity)
        waiting = [process for process, own in members.items() if own.started and not own.completed]
        size = next(iter(members.values())).size
        present = {own.rank for own in members.values()}
        absent = tuple(rank for rank in range(min(size, 1 << 17)) if rank not in present)
        missing = tuple(group.ranks[rank] for rank in absent) if group.ranks else ()
        if waiting and absent and len(state.processes) > 1:
            for process in waiting:
                own = members[process]
                yield Waiting(state.speaker(process), "ncclCommInitRank", missing)
                if not own.calls:
                    # All ranks of a group create its communicator, at the latest in its first collective.
                    named = GroupName(group.name, group.label, own.rank, group.ranks)
                    yield CallSeen(
                        state.speaker(process), named, 1, Signature(UNNAMED, device="cuda"), CallState.WAITING
                    )


def _warnings(log: Log, state: _State) -> Iterator[Fact]:
    """Warnings that mean an error; most do not."""
    seen: set[tuple[Speaker, str]] = set()
    for number, match in enumerate(_WARN.finditer(log.text)):
        if number >= _MOST_WARNINGS:
            return
        text = match[0].strip()
        process = _process(log, state, match.start())
        speaker = state.speaker(process) if process is not None else log.speaker_at(match.start())
        if (speaker, text) not in seen and explain(text) is not None:
            seen.add((speaker, text))
            yield Message(speaker, text)
