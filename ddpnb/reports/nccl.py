"""NCCL's own log (``NCCL_DEBUG=INFO``): which communicators there are, and which operation each rank enqueued last.

NCCL writes a line when an operation is enqueued, so a rank may have continued after its last one. ``opCount`` counts, from 0
and in hexadecimal, the operations that a communicator launched: ranks that made the same calls have the same. ``seq`` is that
number plus 1. Operations with one opCount were launched as a group: they are one call here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpnb.messages.explain import explain
from ddpnb.model.calls import UNNAMED, CallState, Signature
from ddpnb.reports import communicators
from ddpnb.reports.communicators import Communicator, Communicators, Operations
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
from ddpnb.reports.logs import Log

NAME = "NCCL debug log"
MARKS = ("NCCL INFO", "NCCL WARN", "NCCL DIAG")

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


def read(log: Log) -> Iterator[Fact]:
    """Which process is which rank, the members of communicators, and the last operations of each rank in them."""
    found = Communicators(log)
    world = found.world()
    if world is not None:
        size = next(iter(found.members(world).values())).size
        found.ranks |= {process: own.rank for process, own in found.members(world).items() if own.rank >= 0}
        yield WorldSize(size)
    elif found.number_by_devices():
        yield Unknown(_DEVICES)
    for process, rank in found.ranks.items():
        yield Identity(Speaker(rank, process[1], process[0]))
    groups = {identity: found.group(identity, world=identity == world) for identity in found.identities()}
    yield from (Members(group) for group in groups.values() if group.ranks)
    yield from _waiting(found, groups)
    any_call = False
    for process, own in found.processes.items():
        for communicator in own.values():
            if communicator.calls and communicator.identity:
                any_call = True
                yield from _calls(found.speaker(process), communicator, groups[communicator.identity])
    yield from _warnings(log, found)
    yield from _diagnostics(log.text)
    if found.processes:
        yield Unknown(_ENQUEUED if any_call else _NO_CALLS)


def _calls(speaker: Speaker, own: Communicator, group: GroupName) -> Iterator[CallSeen]:
    named = GroupName(group.name, group.label, own.rank, group.ranks)
    for call in own.calls:
        if call.op in ("send", "recv") and not call.several:
            peer = group.ranks[call.root] if 0 <= call.root < len(group.ranks) else -1
            yield CallSeen(speaker, named, 0, _signature(call), CallState.ISSUED, peer=peer)
        elif call.op not in ("send", "recv") or call.sends >= own.size - 1 > 1:
            yield CallSeen(speaker, named, call.count + 1, _signature(call), CallState.ISSUED)


def _signature(call: Operations) -> Signature:
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


def _waiting(found: Communicators, groups: dict[communicators.Identity, GroupName]) -> Iterator[Fact]:
    """Ranks that wait for others while a communicator is created, as far as the log has several ranks."""
    for identity, group in groups.items():
        members = found.members(identity)
        waiting = [process for process, own in members.items() if own.started and not own.completed]
        size = next(iter(members.values())).size
        present = {own.rank for own in members.values()}
        absent = tuple(rank for rank in range(min(size, 1 << 17)) if rank not in present)
        missing = tuple(group.ranks[rank] for rank in absent) if group.ranks else ()
        if waiting and absent and len(found.processes) > 1:
            for process in waiting:
                own = members[process]
                yield Waiting(found.speaker(process), "ncclCommInitRank", missing)
                if not own.calls:
                    # All ranks of a group create its communicator, at the latest in its first collective.
                    named = GroupName(group.name, group.label, own.rank, group.ranks)
                    yield CallSeen(
                        found.speaker(process), named, 1, Signature(UNNAMED, device="cuda"), CallState.WAITING
                    )


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


def _warnings(log: Log, found: Communicators) -> Iterator[Fact]:
    """Warnings that mean an error; most do not."""
    seen: set[tuple[Speaker, str]] = set()
    failed: list[str] = []
    for number, match in enumerate(_WARN.finditer(log.text)):
        if number >= _MOST_WARNINGS:
            return
        text = match[0].strip()
        process = found.process_at(match.start())
        speaker = found.speaker(process) if process is not None else log.speaker_at(match.start())
        if (speaker, text) in seen:
            continue
        seen.add((speaker, text))
        if explain(text) is not None:
            yield Message(speaker, text)
        elif len(failed) < _FEW and _FAILED.search(text) and text not in failed:
            failed.append(text)
            yield Message(NOBODY, text)  # it may follow from the failure of another rank: it blames none
