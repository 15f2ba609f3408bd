"""The communicators of NCCL's log: which processes they have, which rank each is, and their last operations."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from ddpnb.model.names import given_name
from ddpnb.reports.facts import GroupName, Speaker
from ddpnb.reports.logs import Log, last_match
from ddpnb.reports.operations import operation

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
_MOST = 1024  # last calls of a rank in a communicator
_OF_ONE_HOST = 8  # GPUs of a machine: a job with more ranks has other machines, whose GPUs have the same numbers

Process = tuple[str, int]  # host, process id
Identity = tuple[object, ...]  # what a communicator has alike in all processes


@dataclass(slots=True)
class Operations:
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
class Communicator:
    """A communicator in one process."""

    rank: int = -1
    size: int = 0
    identity: Identity = ()
    started: bool = False
    completed: bool = False
    calls: deque[Operations] = field(default_factory=lambda: deque[Operations](maxlen=_MOST))


class Communicators:
    """What a log says of all communicators.

    Args:
        log: the log.

    Attributes:
        processes: the communicators of each process, by their addresses.
        ranks: which process is which rank, as far as it is known.
    """

    def __init__(self, log: Log) -> None:
        self.processes: dict[Process, dict[str, Communicator]] = {}
        self.ranks: dict[Process, int] = {}
        self._devices: dict[Process, int] = {}
        self._log = log
        self._read_init()
        self._read_operations()

    def process_at(self, offset: int) -> Process | None:
        """The process that wrote what is at this offset: by the nearest ``host:pid:thread`` before it."""
        text = self._log.text
        who = last_match(_WHO, text, max(text.rfind("\n", max(offset - 300, 0), offset) + 1, offset - 300), offset)
        if who is None:
            return None
        process = given_name(who[1]), int(who[2])
        if process not in self.processes:
            self.processes[process] = {}
            self._devices[process] = int(who[3])
            rank = self._log.speaker_at(offset).rank
            if rank is not None:
                self.ranks[process] = rank
        return process

    def speaker(self, process: Process) -> Speaker:
        return Speaker(self.ranks.get(process), process[1], process[0])

    def identities(self) -> list[Identity]:
        return list(
            dict.fromkeys(own.identity for held in self.processes.values() for own in held.values() if own.identity)
        )

    def members(self, identity: Identity) -> dict[Process, Communicator]:
        return {
            process: own
            for process, held in self.processes.items()
            for own in held.values()
            if own.identity == identity
        }

    def world(self) -> Identity | None:
        """The communicator of all processes of the log: the first of the largest, if none is beside it."""
        sizes = {identity: next(iter(self.members(identity).values())).size for identity in self.identities()}
        largest = max(sizes.values(), default=0)
        for identity, size in sizes.items():
            members = self.members(identity)
            ranks = [own.rank for own in members.values()]
            if size == largest and len(members) == len([held for held in self.processes.values() if held]):
                contradicts = any(self.ranks.get(process, own.rank) != own.rank for process, own in members.items())
                if min(ranks) >= 0 and len(set(ranks)) == len(ranks) and not contradicts:
                    return identity
        return None

    def number_by_devices(self) -> bool:
        """The end of a log, without the start of its communicators: on one machine ranks have the numbers of their GPUs."""
        devices = {self._devices[process] for process, held in self.processes.items() if held}
        sizes = {own.size for held in self.processes.values() for own in held.values()}
        hosts = {host for host, _ in self._devices}
        if self.ranks or len(hosts) != 1 or len(sizes) != 1 or max(devices) >= max(sizes) or max(sizes) > _OF_ONE_HOST:
            return False
        self.ranks |= {process: self._devices[process] for process, held in self.processes.items() if held}
        return len(set(self.ranks.values())) == len(self.ranks)

    def group(self, identity: Identity, *, world: bool) -> GroupName:
        """The group that uses a communicator. ``world``: it is that of all processes."""
        members = self.members(identity)
        if not world and identity[-1] == "unnamed" and len(self.identities()) == 1:
            return GroupName()  # the only one
        size = next(iter(members.values())).size
        if world:
            return GroupName(ranks=tuple(range(min(size, 1 << 17))))
        name = str(identity[1]) if identity[0] == "id" else "-".join(map(str, _flat(identity)))
        places = {
            own.rank: self.ranks[process] for process, own in members.items() if process in self.ranks and own.rank >= 0
        }
        known = size == len(places) and set(places) == set(range(size))
        ranks = tuple(places[place] for place in range(size)) if known else ()
        return GroupName(f"nccl {given_name(name)}", f"NCCL communicator {given_name(name)}", ranks=ranks)

    def _of(self, process: Process, address: str) -> Communicator:
        return self.processes[process].setdefault(address, Communicator())

    def _read_init(self) -> None:
        counted: dict[tuple[Process, Identity], int] = {}
        for match in _INIT.finditer(self._log.text):
            process = self.process_at(match.start())
            if process is None:
                continue
            new = match[2] not in self.processes[process]
            own = self._of(process, match[2])
            own.rank, own.size = int(match[3]), int(match[4])
            own.started |= match[6] == "START"
            own.completed |= match[6] == "COMPLETE"
            if new or not own.identity:
                own.identity = self._identity(process, match, counted)

    def _identity(
        self, process: Process, match: re.Match[str], counted: dict[tuple[Process, Identity], int]
    ) -> Identity:
        """The id of a communicator, or from which other one it was split, or its turn."""
        size, rest = int(match[4]), match[5]
        if named := _COMM_ID.search(rest):
            return "id", named[1]
        base: Identity = ("size", size)
        if (split := _PARENT.search(rest)) and split[1] in self.processes[process]:
            base = ("split", self._of(process, split[1]).identity, split[2], split[3], size)
        turn = counted[process, base] = counted.get((process, base), -1) + 1
        return *base, turn

    def _read_operations(self) -> None:
        for match in _OPERATION.finditer(self._log.text):
            process = self.process_at(match.start())
            if process is None:
                continue
            own = self._of(process, match[7])
            own.size = own.size or int(match[8])
            if not own.identity:
                own.identity = ("size", own.size, "unnamed")  # the log begins after its start
            if match[9] is not None:
                self.ranks[process] = int(match[9])
            _add(own.calls, match)


def _add(calls: deque[Operations], match: re.Match[str]) -> None:
    count, name = int(match[2], 16), match[1]
    op = operation(name)
    call = calls[-1] if calls and calls[-1].count == count else None
    if call is None:
        call = Operations(count, op, int(match[3]), int(match[4]), int(match[5]), int(match[6]))
        calls.append(call)
    elif (call.op, call.root) != (op, int(match[6])):
        call.several = True
    call.sends += op == "send"


def _flat(identity: object) -> Iterator[object]:
    for part in identity if isinstance(identity, tuple) else (identity,):
        yield from _flat(part) if isinstance(part, tuple) else (part,)
