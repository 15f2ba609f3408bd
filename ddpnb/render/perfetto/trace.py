"""What all parts of a trace refer to: who meets whom, from when to when, and the tracks of each rank."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ddpnb.errors import UsageError
from ddpnb.model.calls import P2P_OPS, Call, CallState, Group, Signature
from ddpnb.model.collectives import Direction, direction_of, message_key, root_of
from ddpnb.model.findings import Finding
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.render.text import one_line

STEPS, PHASES, CALLS = 1, 2, 10  # tracks of a rank
LANES = 16  # of the calls of one group that overlap
SEEN = frozenset(state for state in CallState if state.seen_by_peers)
IN_FLIGHT = frozenset(state for state in CallState if state.in_flight)

_PIDS = range(1, 1 << 31)
_OWN_PIDS = 1_000_000  # of ranks whose process IDs are not known or not unique
_TIDS = 1_000_000_000  # those of a track must be unique in the whole trace
_TRACKS = 1000  # of a rank


@dataclass(slots=True)
class _Meeting:
    """One collective or message: who called it, and when; and its flow, as far as it is written."""

    count: int = 0
    last_ns: int = 0
    last_rank: int = -1
    root_ns: int = 0  # when its root called it
    flow: int = 0
    passed: int = 0


@dataclass(slots=True)
class _Kind:
    """What calls with one signature have in common."""

    name: str  # of the operation, as JSON without its quotes
    direction: Direction
    p2p: bool


@dataclass
class Trace:
    """What all parts of the trace refer to."""

    recording: Recording
    origin: int
    end: int
    pids: dict[int, int]
    groups: dict[str, int] = field(default_factory=dict[str, int])  # key -> number, in the order of the tracks
    group_of: dict[str, Group] = field(default_factory=dict[str, Group])
    meetings: dict[Any, _Meeting] = field(default_factory=dict[Any, _Meeting])
    lanes: dict[tuple[int, str], int] = field(default_factory=dict[tuple[int, str], int])
    kinds: dict[int, _Kind] = field(default_factory=dict[int, _Kind])
    flows: int = 0
    named: dict[int, tuple[dict[int, str], dict[int, int]]] = field(
        default_factory=dict[int, tuple[dict[int, str], dict[int, int]]]
    )

    def named_by(self, finding: Finding) -> tuple[dict[int, str], dict[int, int]]:
        """The ranks that a finding names, with their parts in it, and when each was at its point; worked out once for all ranks."""
        if id(finding) not in self.named:
            parts = dict.fromkeys(finding.concerned, "")
            parts |= dict.fromkeys(finding.waiting, "waits") | dict.fromkeys(finding.culprits, "culprit")
            self.named[id(finding)] = parts, dict(finding.moments)
        return self.named[id(finding)]

    @classmethod
    def of(cls, recording: Recording) -> Trace:
        first, last = 1 << 63, 0
        for record in recording.ranks.values():
            for moment in _moments(record):
                first, last = min(first, moment), max(last, moment)
        if not last:
            raise UsageError(
                "This recording has no times: there is nothing to draw.", "Record the job with ddpnb run --save FILE."
            )
        pids = {rank: record.pid for rank, record in recording.ranks.items()}
        if len(set(pids.values())) < len(pids) or any(pid not in _PIDS for pid in pids.values()):
            pids = {rank: _OWN_PIDS + rank for rank in pids}
        made = cls(recording, first, max(last, recording.taken_ns if known(recording.taken_ns) else 0), pids)
        for rank, record in sorted(recording.ranks.items()):
            made._read(rank, record)
        return made

    def _read(self, rank: int, record: RankRecord) -> None:
        """Who meets whom, and how many tracks the calls of each group need."""
        free: dict[str, Lanes] = {}
        for call in in_time(record):
            group, at = call.group.key, call.entered_ns
            if group not in self.groups:
                self.groups[group] = len(self.groups)
                self.group_of[group] = call.group
            free.setdefault(group, Lanes()).take(at, self.end_of(call))
            key = self.key(rank, call)
            if key is None or call.state not in SEEN:
                continue
            meeting = self.meetings.get(key)
            if meeting is None:
                meeting = self.meetings[key] = _Meeting()
            meeting.count += 1
            if at >= meeting.last_ns:
                meeting.last_ns, meeting.last_rank = at, rank
            if self.kind(call.signature).direction is Direction.FROM_ROOT and root_of(call) == rank:
                meeting.root_ns = at
        for key, lanes in free.items():
            self.lanes[rank, key] = len(lanes.ends)

    def kind(self, signature: Signature) -> _Kind:
        """Looked up by identity: the recording keeps them alive."""
        found = self.kinds.get(id(signature))
        if found is None:
            name = json.dumps(one_line(signature.op, 100))[1:-1]
            found = self.kinds[id(signature)] = _Kind(name, direction_of(signature.op), signature.op in P2P_OPS)
        return found

    def key(self, rank: int, call: Call) -> Any:
        """What the calls of one collective have in common, or a send and its receive."""
        if call.seq:
            return self.groups[call.group.key], call.seq, call.signature.op
        return message_key(call, rank, self.groups[call.group.key])

    def end_of(self, call: Call) -> int:
        if call.state in IN_FLIGHT:
            return max(call.entered_ns, self.end)
        ended = call.done_ns if known(call.done_ns) else call.issued_ns
        return max(call.entered_ns, ended if known(ended) else 0)

    def flow(self, key: Any) -> str:
        """The part of an event that is the next call of this meeting: the flow passes them in the order of arrival."""
        meeting = self.meetings.get(key)
        if meeting is None or meeting.count < 2:
            return ""
        if not meeting.flow:
            self.flows += 1
            meeting.flow = self.flows
        meeting.passed += 1
        out = ',"flow_out":true' if meeting.passed < meeting.count else ""
        into = ',"flow_in":true' if meeting.passed > 1 else ""
        return f',"bind_id":{meeting.flow}{into}{out}'

    def tid(self, rank: int, track: int) -> int:
        return _TIDS + rank * _TRACKS + min(track, _TRACKS - 1)

    def track(self, key: str, lane: int) -> int:
        return CALLS + self.groups[key] * LANES + lane


class Lanes:
    """Tracks for slices that overlap."""

    def __init__(self) -> None:
        self.ends: list[int] = []

    def take(self, begin: int, end: int) -> int:
        """The first track that is free; the last one if there are no more."""
        for number, until in enumerate(self.ends):
            if until <= begin:
                self.ends[number] = end
                return number
        if len(self.ends) < LANES:
            self.ends.append(end)
        return len(self.ends) - 1


def _moments(record: RankRecord) -> Iterator[int]:
    for call in record.calls:
        yield from filter(known, (call.entered_ns, call.done_ns))
    for event in record.history:
        yield from filter(known, (event.began_ns, event.ended_ns))
    yield from (mark.at_ns for mark in record.marks if known(mark.at_ns))
    yield from (one.at_ns for one in record.samples if known(one.at_ns) and one.kind != "earlier")
    if record.ending is not None and known(record.ending.at_ns):
        yield record.ending.at_ns


def in_time(record: RankRecord) -> list[Call]:
    """The calls whose begin is known, in the order of time: several threads may have made them."""
    return sorted((call for call in record.calls if known(call.entered_ns)), key=lambda call: call.entered_ns)


def known(moment: int) -> bool:
    return 0 < moment < 1 << 63


def us(ns: int) -> str:
    """Microseconds, exactly."""
    ns = max(0, ns)
    return f"{ns // 1000}.{ns % 1000:03d}" if ns % 1000 else f"{ns // 1000}"
