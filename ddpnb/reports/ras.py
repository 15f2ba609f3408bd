"""The state of a running NCCL job, as its RAS service or ``ncclras`` gives it (NCCL 2.24 and later): text, and JSON (2.28.7).

It counts what each rank of a communicator has launched, since NCCL 2.26 for each kind of operation.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from ddpnb.recording.calls import CallState, Signature
from ddpnb.recording.names import UNDECODABLE, given_name
from ddpnb.reports.facts import (
    CallSeen,
    Fact,
    GroupName,
    Identity,
    Message,
    Progress,
    Speaker,
    Unknown,
    Waiting,
    WorldSize,
)
from ddpnb.reports.logs import Log
from ddpnb.reports.operations import operation

NAME = "NCCL RAS output"
MARKS = ("INCOMPLETE", "MISMATCH", "communicators_count", "Job summary", "operation counts", "considered dead")

_SUMMARY = re.compile(
    r"\(total\)\s{1,9}per node\s{1,9}per process\s{1,9}\(total\)\s{1,9}\(total\)[ \t]{0,9}\n"
    r"[ \t]{1,20}\d{1,7}[ \t]{1,20}\d{1,7}[ \t]{1,20}\d{1,7}[ \t]{1,20}\d{1,7}[ \t]{1,20}(\d{1,7})[ \t]{0,9}\n"
)
#: where the nodes differ
_TOTAL = re.compile(
    r"\(total\)[ \t]{1,20}\(total\)[ \t]{1,20}\(total\)[ \t]{0,9}\n[ \t]{1,20}\d{1,7}[ \t]{1,20}\d{1,7}[ \t]{1,20}(\d{1,7})[ \t]{0,9}\n"
)
_TABLE_ROW = re.compile(
    r"^[ \t]{1,12}(\d{1,6})[ \t]{1,12}(\d{1,7})[ \t]{1,12}\d{1,7}[ \t]{1,12}\d{1,7}(?:-\d{1,7})?[ \t]{1,12}(\d{1,7})"
    r"[ \t]{1,12}\d{1,7}[ \t]{1,12}[A-Z,]{2,40}[ \t]{1,12}[A-Z,]{2,40}[ \t]{0,9}$",
    re.MULTILINE,
)
_SECTION = re.compile(r"^[ \t]{0,4}#(\d{1,6})-(\d{1,6}) \(([0-9a-f]{1,16})\) ([A-Z,]{2,40})[ \t]{0,9}$", re.MULTILINE)
_COUNTS = re.compile(r"Communicator ranks have different (\w{1,40}) operation counts")
_MANY = re.compile(r"(\d{1,7}) ranks have (?:launched up to operation (\d{1,18})|not launched any operations)")
_ONE = re.compile(
    r"Rank (\d{1,7}) has (?:launched up to operation (\d{1,18})|not launched any operations)(?: -- (.{0,200}))?$"
)
_LISTED = re.compile(r"Rank (\d{1,7}) -- (.{0,200})$")
_PROCESS = re.compile(r"managed by process (\d{1,10}) on node ([\w.:-]{1,200})")
_MISSING = re.compile(r"The missing ranks?:([\d ,\n]{1,20000})")
_REPORTED = re.compile(r"Rank (\d{1,7}) reported ([^\n]{1,80}?) -- (.{0,200})$")
_COMMA = re.compile(r'("nvml_dev": -?\d{1,6})(\s{1,200}"status")')
_ENDED = {
    1: "Unhandled CUDA error",
    2: "System error",
    3: "Internal error",
    4: "Invalid argument",
    5: "Invalid usage",
    6: "Remote process error",
}  # ncclResult_t, in the words of the text format
_STARTING = 7  # ncclInProgress
_MOST = 100_000  # ranks

_COUNTS_ONLY = (
    "NCCL RAS counts the operations that each rank has launched: it does not say which call a rank is in, with which sizes, or "
    "at which line. Query it again after a minute: counts that differ and do not change mean a deadlock. Collect the flight "
    "recorder (TORCH_FR_BUFFER_SIZE=2000) or py-spy dump of each rank next."
)


@dataclass
class _Communicator:
    """A communicator: its size, how much of each operation each rank has launched, and who does not answer."""

    name: str
    size: int = 0
    counts: dict[str, dict[int, int]] = field(default_factory=dict[str, dict[int, int]])
    usual: dict[str, int] = field(default_factory=dict[str, int])  # of the ranks that are not listed
    missing: set[int] = field(default_factory=set[int])
    outside: set[int] = field(default_factory=set[int])  # they answer, and do not know the communicator
    starting: set[int] = field(default_factory=set[int])
    known: dict[int, Speaker] = field(default_factory=dict[int, Speaker])
    errors: dict[int, str] = field(default_factory=dict[int, str])

    def usually(self, op: str) -> list[int]:
        return [self.usual[op]] if op in self.usual else []

    def all_counts(self, op: str) -> dict[int, int]:
        """The counts of all ranks: those that are not listed have the usual one."""
        return {rank: count for count in self.usually(op) for rank in range(min(self.size, _MOST))} | self.counts[op]


def unchanged(before: str, after: str) -> bool:
    """Whether no rank has launched anything between two answers of one job: counts that differ then are no race."""
    counts = [
        {(each.name, op): (own, each.usual.get(op)) for each in _communicators(text) for op, own in each.counts.items()}
        for text in (before, after)
    ]
    return bool(counts[0]) and counts[0] == counts[1]


def processes(text: str) -> set[int]:
    """The process IDs that an answer names."""
    return {one.pid for each in _communicators(text) for one in each.known.values()}


def _communicators(text: str) -> list[_Communicator]:
    return _of_json(text) or list(_of_text(text))


def read(log: Log) -> Iterator[Fact]:
    """The world size, which ranks do not answer, and in which operations the ranks differ."""
    communicators = _communicators(log.text)
    said = [int(match[1]) for pattern in (_SUMMARY, _TOTAL) for match in pattern.finditer(log.text)]
    named = {(one.host, one.pid) for each in communicators for one in each.known.values()}
    total = max(said or [len(named), *(each.size for each in communicators)], default=0)
    if not communicators and not said:
        return
    if 0 < total <= _MOST:
        yield WorldSize(total)
    for each in communicators:
        yield from _facts(each, world=each.size == total)
    yield Unknown(_COUNTS_ONLY)


def _facts(each: _Communicator, *, world: bool) -> Iterator[Fact]:
    """Ranks are those in the communicator: the global ones only where it has them all."""
    for rank, speaker in each.known.items():
        if world and speaker.pid:
            yield Identity(Speaker(rank, speaker.pid, speaker.host))
    group = GroupName() if world else GroupName(f"nccl {each.name}", f"NCCL communicator {each.name}")

    def who(rank: int) -> Speaker:
        known = each.known.get(rank, Speaker())
        return Speaker(rank if world else None, known.pid, known.host)

    def named(rank: int) -> GroupName:
        return GroupName(group.name, group.label, rank)

    for rank in sorted(each.missing):
        yield Message(
            who(rank),
            f"NCCL RAS: rank {rank} does not answer: its process is stopped, has ended, or its machine is unreachable.",
        )
    for rank in sorted(each.starting) if each.missing or each.outside else ():
        absent = tuple(sorted(each.missing | each.outside))
        yield Waiting(who(rank), "ncclCommInitRank", absent if world else ())
    for rank, text in sorted(each.errors.items()):
        yield Message(who(rank), f"NCCL RAS: rank {rank} reported {text}.")
    totals: Counter[int] = Counter()  # of operations of all kinds; a text lists only the kinds that differ
    for own in each.counts.values() if not each.usual else ():
        totals.update(own)
    different = {
        op: each.all_counts(op) for op, own in each.counts.items() if len({*own.values(), *each.usually(op)}) > 1
    }
    if different:
        op, everyone = max(different.items(), key=lambda item: max(item[1].values()))
        most = max(everyone.values())
        for rank in sorted(rank for rank, count in everyone.items() if count == most and rank not in each.missing):
            call = Signature(op, device="cuda")
            yield CallSeen(who(rank), named(rank), totals.get(rank, most), call, CallState.ISSUED)
        for rank, count in sorted((totals or next(iter(different.values()))).items()):
            if rank not in each.missing:
                yield Progress(who(rank), named(rank), enqueued=count)
    for rank in sorted(each.missing & totals.keys()):
        yield Progress(who(rank), named(rank), enqueued=totals[rank])


# -- text


def _of_text(text: str) -> Iterator[_Communicator]:
    sizes = {int(match[1]): int(match[3]) for match in _TABLE_ROW.finditer(text)}
    found: dict[str, _Communicator] = {}
    heads = list(_SECTION.finditer(text))
    for head, after in zip(heads, [*heads[1:], None], strict=False):
        body = text[head.end() : after.start() if after else head.end() + 2_000_000]
        each = found.setdefault(head[3], _Communicator(f"0x{head[3]}", sizes.get(int(head[1]), 0)))
        _section(each, head[4], body.split("\n\n", 1)[0] if body.startswith("\n") else body)
    yield from found.values()


def _section(each: _Communicator, kind: str, body: str) -> None:
    op, listed, missing = "", -1, kind.startswith("INCOMPLETE")
    if match := _MISSING.search(body):
        each.missing |= {int(number) for number in re.findall(r"\d{1,7}", match[1])}
    for line in body.split("\n"):
        if match := _COUNTS.search(line):
            op, missing = operation("?" if match[1] == "collective" else match[1]), False
        elif match := _MANY.search(line):
            listed = int(match[2] or 0)
            if op not in each.usual or int(match[1]) * 2 > each.size:
                each.usual[op] = listed
        elif match := _ONE.search(line):
            each.counts.setdefault(op, {})[int(match[1])] = int(match[2] or 0)
            _process(each, int(match[1]), match[3] or "")
        elif match := _REPORTED.search(line):
            each.errors[int(match[1])] = match[2]
            _process(each, int(match[1]), match[3])
        elif match := _LISTED.search(line):
            rank = int(match[1])
            _process(each, rank, match[2])
            if missing:
                each.missing.add(rank)
            elif op and listed >= 0:
                each.counts.setdefault(op, {})[rank] = listed
        elif "different status" in line:
            op, listed = "", -1


def _process(each: _Communicator, rank: int, text: str) -> None:
    if match := _PROCESS.search(text):
        each.known[rank] = Speaker(rank, int(match[1]), given_name(match[2]))


# -- JSON


def _of_json(text: str) -> list[_Communicator]:
    start = text.find("{")
    if start < 0 or '"communicators"' not in text:
        return []
    try:
        # NCCL 2.28.9 leaves out a comma in the list of missing ranks.
        whole = _COMMA.sub(r"\1,\2", text[start:])
        value, _ = json.JSONDecoder().raw_decode(whole)
        return [_communicator(each) for each in value["communicators"][:_MOST]]
    except UNDECODABLE:
        return []


def _communicator(value: dict[str, Any]) -> _Communicator:
    each = _Communicator(given_name(value.get("hash", "?")), int(value.get("size", 0)))
    for entry in cast("list[dict[str, Any]]", value.get("ranks", ()))[:_MOST]:
        rank = _known(each, entry)
        for name, count in entry.get("collective_counts", {}).items():
            each.counts.setdefault(operation(str(name)), {})[rank] = int(count)
        status = entry.get("status", {})
        started, failed = int(status.get("init_state", 0)), int(status.get("async_error", 0))
        if started == _STARTING:
            each.starting.add(rank)
        for number in (started, failed):
            if number not in (0, _STARTING):
                each.errors[rank] = f"{_ENDED.get(number, 'Unexpected error')} (NCCL error {number})"
        if status.get("abort_flag") is True:
            each.errors.setdefault(rank, "that its communicator was aborted")
    for entry in cast("list[dict[str, Any]]", value.get("missing_ranks", ()))[:_MOST]:
        rank, status = _known(each, entry), entry.get("status", {})
        answers = status.get("unresponsive") is False and not status.get("considered_dead")
        (each.outside if answers else each.missing).add(rank)
    return each


def _known(each: _Communicator, entry: dict[str, Any]) -> int:
    rank, pid = int(entry["rank"]), int(entry.get("pid", 0))
    if pid > 0:  # -1 on a host "unknown"
        each.known[rank] = Speaker(rank, pid, given_name(entry.get("host", "")))
    return rank
