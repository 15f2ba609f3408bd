"""Desynchronisation reports of torch (``TORCH_NCCL_DESYNC_DEBUG=1``): which ranks started and finished which collective."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpnb.recording.calls import CallState, Signature
from ddpnb.reports.facts import CallSeen, Fact, GroupName, Progress, Speaker, Waiting
from ddpnb.reports.logs import Log
from ddpnb.reports.operations import operation

NAME = "desynchronisation report of torch"
MARKS = ("best knowledge", "latest states", "Timeout at collective")

_RANKS = r"\[([\d,\s-]{1,20000}?)\]"
_AT = re.compile(r"\[(\d{1,6})\]\s{1,3}Timeout at collective:\s{1,3}(\w{1,60}),\s{1,3}#(\d{1,18})")
_ABSENT = re.compile(rf"{_RANKS}\s{{1,3}}are the lagging ranks that caused this\s{{1,3}}timeout")
_UNFINISHED = re.compile(
    rf"{_RANKS}\s{{1,3}}joined but didn't finish collective\s{{1,3}}#(\d{{1,18}})(?:\s{{0,3}}\((\w{{1,60}})\))?"
)
_FINISHED = re.compile(
    rf"{_RANKS}\s{{1,3}}finished collective\s{{1,3}}#(\d{{1,18}})(?:\s{{0,3}}\((\w{{1,60}})\))?,?"
    r"(?:\s{1,3}but didn't join collective\s{1,3}#(\d{1,18}))?"
)
_HEAD = re.compile(r"#(\d{1,18})\s{1,3}(started|finished)\s{1,3}ranks:")
_STATE = re.compile(rf"\s{{0,40}}{_RANKS}\s{{1,3}}(started|finished)\s{{1,3}}(\w{{1,60}})")
_MOST = 100_000  # ranks in one report


def read(log: Log) -> Iterator[Fact]:
    """The last collective of each rank; several ranks report the same, so a fact is given once."""
    yield from dict.fromkeys(_facts(log.text))


def _facts(text: str) -> Iterator[Fact]:
    for match in _AT.finditer(text):
        yield _call(int(match[1]), int(match[3]), match[2], CallState.WAITING)
    for match in _ABSENT.finditer(text):
        absent = _ranks(match[1])
        for rank in absent:
            yield Progress(Speaker(rank), GroupName(), 0, 0, 0)
        at = _AT.search(text, max(match.start() - 2000, 0), match.start())
        waiting = Speaker(int(at[1])) if at else Speaker()
        yield Waiting(waiting, operation(at[2]) if at else "", missing=absent)
    states = set(_snapshots(text))
    yield from sorted(states, key=lambda call: (call.seq, call.speaker.rank or 0))
    shown = {call.speaker.rank for call in states}
    for match in _UNFINISHED.finditer(text):
        for rank in _ranks(match[1]):
            if rank not in shown:
                yield _call(rank, int(match[2]), match[3] or "", CallState.WAITING)
    for match in _FINISHED.finditer(text):
        for rank in _ranks(match[1]):
            number = int(match[2])
            yield Progress(Speaker(rank), GroupName(), number, number, number)


def _snapshots(text: str) -> Iterator[CallSeen]:
    for head in _HEAD.finditer(text):
        end = head.end()
        while (match := _STATE.match(text, end)) is not None:
            end = match.end()
            state = CallState.WAITING if match[2] == "started" else CallState.COMPLETED
            for rank in _ranks(match[1]):
                yield _call(rank, int(head[1]), match[3], state)


def _call(rank: int, number: int, name: str, state: CallState) -> CallSeen:
    return CallSeen(Speaker(rank), GroupName(rank=rank), number, Signature(operation(name), device="cuda"), state)


def _ranks(text: str) -> tuple[int, ...]:
    """``0, 1, 2`` or ``0-3, 7``."""
    found: list[int] = []
    for part in re.findall(r"\d{1,6}(?:\s{0,2}-\s{0,2}\d{1,6})?", text):
        first, _, last = part.partition("-")
        found += range(int(first), min(int(last or first), int(first) + _MOST) + 1)
        if len(found) > _MOST:
            break
    return tuple(sorted(set(found[:_MOST])))
