"""A Recording as a trace for https://ui.perfetto.dev, in Chrome's Trace Event Format (JSON).

A process for each rank; in it a track for optimizer steps, one for phases (start-up, data loaders, checkpoints), and one or
more for the calls of each group: asynchronous calls overlap, and slices of one track must not. The calls of one collective,
or a send and its receive, are one flow, in the order in which the ranks arrived. Written as it is made: a million calls need
no more memory than a few.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ddpnb.diagnosis.diagnose import diagnose
from ddpnb.errors import UsageError
from ddpnb.files import write_parts
from ddpnb.model.calls import NO_SITE, P2P_OPS, Call, CallState, Group, Signature, Site
from ddpnb.model.collectives import Direction, direction_of, message_key, root_of
from ddpnb.model.events.runs import Checkpoint
from ddpnb.model.findings import Diagnosis
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.render.text import one_line

_PIDS = range(1, 1 << 31)
_OWN_PIDS = 1_000_000  # of ranks whose process IDs are not known or not unique
_TIDS = 1_000_000_000  # those of a track must be unique in the whole trace
_TRACKS = 1000  # of a rank
_STEPS, _PHASES, _CALLS = 1, 2, 10
_LANES = 16  # of the calls of one group that overlap
_TEXT = 300  # characters
_EVENTS_IN_PART = 2000
_LEVEL = 4  # of compression

_STATES = {state: state.name.lower() for state in CallState}
_SEEN = frozenset(state for state in CallState if state.seen_by_peers)
_IN_FLIGHT = frozenset(state for state in CallState if state.in_flight)

# moment in ns, rank, number, the event up to where its flow would be, the key of its flow
_Item = tuple[int, int, int, str, Any]


def save(recording: Recording, path: str | os.PathLike[str]) -> None:
    """Write the trace: see ``Recording.to_perfetto``."""
    parts = (part.encode() for part in events(recording, diagnose(recording)))
    packed = isinstance(path, (str, os.PathLike)) and os.fsdecode(path).endswith(".gz")
    write_parts(path, _packed(parts) if packed else parts)


def _packed(parts: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(_LEVEL, wbits=31)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


def events(recording: Recording, diagnosis: Diagnosis) -> Iterator[str]:
    """The parts of the file.

    Raises:
        UsageError: no time is recorded, as in most logs.
    """
    trace = _Trace.of(recording)
    yield '{"displayTimeUnit":"ms","otherData":{"source":"ddpnb","clock":"the first event is at 0"},"traceEvents":[\n'
    yield ",\n".join(_names(trace))
    part: list[str] = []
    streams = [trace_of for rank in sorted(recording.ranks) for trace_of in _streams(trace, rank, diagnosis)]
    for moment, _, _, text, key in heapq.merge(*streams):
        part.append(f'{text},"ts":{_us(moment - trace.origin)}{trace.flow(key) if key is not None else ""}}}')
        if len(part) >= _EVENTS_IN_PART:
            yield ",\n" + ",\n".join(part)
            part.clear()
    if part:
        yield ",\n" + ",\n".join(part)
    yield "\n]}\n"


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
class _Trace:
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

    @classmethod
    def of(cls, recording: Recording) -> _Trace:
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
        made = cls(recording, first, max(last, recording.taken_ns if _known(recording.taken_ns) else 0), pids)
        for rank, record in sorted(recording.ranks.items()):
            made._read(rank, record)
        return made

    def _read(self, rank: int, record: RankRecord) -> None:
        """Who meets whom, and how many tracks the calls of each group need."""
        free: dict[str, _Lanes] = {}
        for call in _in_time(record):
            group, at = call.group.key, call.entered_ns
            if group not in self.groups:
                self.groups[group] = len(self.groups)
                self.group_of[group] = call.group
            free.setdefault(group, _Lanes()).take(at, self.end_of(call))
            key = self.key(rank, call)
            if key is None or call.state not in _SEEN:
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
        if call.state in _IN_FLIGHT:
            return max(call.entered_ns, self.end)
        known = call.done_ns if _known(call.done_ns) else call.issued_ns
        return max(call.entered_ns, known if _known(known) else 0)

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
        return _CALLS + self.groups[key] * _LANES + lane


class _Lanes:
    """Tracks for slices that overlap."""

    def __init__(self) -> None:
        self.ends: list[int] = []

    def take(self, begin: int, end: int) -> int:
        """The first track that is free; the last one if there are no more."""
        for number, until in enumerate(self.ends):
            if until <= begin:
                self.ends[number] = end
                return number
        if len(self.ends) < _LANES:
            self.ends.append(end)
        return len(self.ends) - 1


def _names(trace: _Trace) -> Iterator[str]:
    """The metadata: names and order of processes and tracks."""
    for place, rank in enumerate(sorted(trace.recording.ranks)):
        pid = trace.pids[rank]
        yield _metadata("process_name", pid, None, {"name": f"rank {rank}"})
        yield _metadata("process_sort_index", pid, None, {"sort_index": place})
        device = trace.recording.ranks[rank].device
        if device:
            yield _metadata("process_labels", pid, None, {"labels": one_line(device, 40)})
        tracks = [(_STEPS, "optimizer steps"), (_PHASES, "phases")]
        for key, group in trace.group_of.items():
            for lane in range(trace.lanes.get((rank, key), 0)):
                more = f" ({lane + 1})" if lane else ""
                tracks.append((trace.track(key, lane), f"{one_line(str(group), 80)}{more}"))
        for track, name in tracks:
            yield _metadata("thread_name", pid, trace.tid(rank, track), {"name": name})
            yield _metadata("thread_sort_index", pid, trace.tid(rank, track), {"sort_index": track})


def _metadata(name: str, pid: int, tid: int | None, args: dict[str, Any]) -> str:
    where = {"pid": pid} if tid is None else {"pid": pid, "tid": tid}
    return json.dumps({"name": name, "ph": "M", **where, "args": args}, separators=(",", ":"))


def _streams(trace: _Trace, rank: int, diagnosis: Diagnosis) -> Iterable[Iterable[_Item]]:
    """What is known of a rank, each stream in the order of time."""
    record = trace.recording.ranks[rank]
    rest = [
        *_steps(trace, record),
        *_phases(trace, record),
        *_counters(trace, record),
        *_findings(trace, record, diagnosis),
    ]
    rest.sort(key=lambda one: one[0])
    return (
        _calls(trace, record),
        ((moment, rank, -1 - number, text, None) for number, (moment, text) in enumerate(rest)),
    )


def _calls(trace: _Trace, record: RankRecord) -> Iterator[_Item]:
    """A slice for each call; in it, how long it waited until the ranks that it needs had called it."""
    rank, number, pid = record.rank, 0, trace.pids[record.rank]
    free: dict[str, _Lanes] = {}
    about: dict[
        tuple[int, int, int], str
    ] = {}  # of calls that share what they refer to, which the recording keeps alive
    for call in _in_time(record):
        begin, end, group, kind = call.entered_ns, trace.end_of(call), call.group.key, trace.kind(call.signature)
        lane = free.setdefault(group, _Lanes()).take(begin, end)
        shared = id(call.signature), id(call.group), id(call.site)
        args = about.get(shared)
        if args is None:
            facts = {"group": str(call.group), "call": str(call.signature), **_place(call.site)}
            args = about[shared] = json.dumps(_short(facts), separators=(",", ":"))[:-1]
        where = f'"pid":{pid},"tid":{trace.tid(rank, trace.track(group, lane))}'
        name = json.dumps(one_line(call.title, 100))[1:-1] if kind.p2p else f"{kind.name} #{call.seq}"
        state = _STATES[call.state]
        key = trace.key(rank, call)
        number += 2
        yield (
            begin, rank, number,
            f'{{"name":"{name}","cat":"call,{state}","ph":"X",{where},"dur":{_us(end - begin)},'
            f'"args":{args},"number":{call.number},"state":"{state}"}}',
            key if call.state in _SEEN else None,
        )  # fmt: skip
        until, whom = _waits(trace, rank, call, kind.direction, key, end)
        if until > begin:
            text = f'{{"name":"waiting","cat":"waiting","ph":"X",{where},"dur":{_us(until - begin)},"args":{{"for":"{whom}"}}'
            yield begin, rank, number + 1, text, None


def _waits(trace: _Trace, rank: int, call: Call, direction: Direction, key: Any, end: int) -> tuple[int, str]:
    """Until when a call waited for other ranks, and for which; (0, "") if it did not, or that is not known."""
    meeting = trace.meetings.get(key) if call.seq and call.state in _SEEN else None
    if meeting is None:
        return 0, ""
    if direction is not Direction.ALL_TO_ALL:
        root = root_of(call)
        if direction is Direction.TO_ROOT and rank != root:
            return 0, ""
        if direction is Direction.FROM_ROOT and root is not None:
            if rank == root or not (meeting.root_ns or call.state in _IN_FLIGHT):
                return 0, ""
            return (min(meeting.root_ns, end) if meeting.root_ns else end), f"rank {root}"
    missing = len(call.group.ranks) - meeting.count
    if missing > 0:
        return (end, f"{missing} missing rank{'s' * (missing > 1)}") if call.state in _IN_FLIGHT else (0, "")
    return min(meeting.last_ns, end), f"rank {meeting.last_rank}"


def _steps(trace: _Trace, record: RankRecord) -> Iterator[tuple[int, str]]:
    """A slice from each optimizer step to the next, and the moments of backward passes."""
    where = f'"pid":{trace.pids[record.rank]},"tid":{trace.tid(record.rank, _STEPS)}'
    before = 0
    for mark in record.marks:
        if not _known(mark.at_ns):
            continue
        if mark.kind == "step" and 0 < before <= mark.at_ns:
            yield before, f'{{"name":"step {mark.steps}","cat":"step","ph":"X",{where},"dur":{_us(mark.at_ns - before)}'
        if mark.kind in ("begin", "step"):
            before = mark.at_ns
        else:
            what = "end of backward" if mark.kind == "backward" else "end of the run"
            yield mark.at_ns, f'{{"name":"{what}","cat":"mark","ph":"i","s":"t",{where}'


def _phases(trace: _Trace, record: RankRecord) -> Iterator[tuple[int, str]]:
    """Start-up, groups, models, data loaders, checkpoints: slices, and moments of what takes no time."""
    pid, lanes = trace.pids[record.rank], _Lanes()
    for event in sorted(record.history, key=lambda one: one.began_ns):
        begin = event.began_ns
        if not _known(begin):
            continue
        end = trace.end if event.state == "open" else max(begin, event.ended_ns if _known(event.ended_ns) else 0)
        title = f"{event.number}: {event.name}" if isinstance(event, Checkpoint) else event.title
        name = json.dumps(one_line(title, 100))
        args = json.dumps(_short({"state": event.state, **_place(event.site)}))
        if end == begin:
            tid = trace.tid(record.rank, _PHASES)
            yield begin, f'{{"name":{name},"cat":"event","ph":"i","s":"t","pid":{pid},"tid":{tid},"args":{args}'
        else:
            tid = trace.tid(record.rank, _PHASES + min(lanes.take(begin, end), _CALLS - _PHASES - 1))
            yield (
                begin,
                f'{{"name":{name},"cat":"event","ph":"X","pid":{pid},"tid":{tid},"dur":{_us(end - begin)},"args":{args}',
            )


def _counters(trace: _Trace, record: RankRecord) -> Iterator[tuple[int, str]]:
    """Losses and norms of gradients that were sampled, and the memory when the recording was taken."""
    where = f'"pid":{trace.pids[record.rank]},"tid":{trace.tid(record.rank, _STEPS)}'
    for sample in record.samples:
        value: float | None = None
        if sample.kind == "backward":
            what, value = "loss", sample.number("loss")
        else:
            what, norms = "norm of the gradients", [one.norm for one in sample.digests.values() if one.norm is not None]
            if sample.kind == "gradients" and norms:
                value = math.hypot(*norms)
        if value is not None and math.isfinite(value) and _known(sample.at_ns):
            name = json.dumps(f"{what}, model {sample.model}" if sample.model else what)
            yield sample.at_ns, f'{{"name":{name},"ph":"C",{where},"args":{{"value":{value!r}}}'
    process, taken = record.process, trace.recording.taken_ns
    for what, count in (("memory, MB", process.memory), ("GPU memory, MB", process.device_memory)):
        if count > 0 and _known(taken):
            yield taken, f'{{"name":"{what}","ph":"C",{where},"args":{{"value":{count / 1e6!r}}}'


def _findings(trace: _Trace, record: RankRecord, diagnosis: Diagnosis) -> Iterator[tuple[int, str]]:
    """Where findings show on this rank, and how it ended."""
    where = f'"pid":{trace.pids[record.rank]},"tid":{trace.tid(record.rank, _PHASES)}'
    for finding in diagnosis.findings:
        at = dict(finding.moments).get(record.rank, trace.recording.taken_ns if record.rank in finding.concerned else 0)
        if _known(at):
            part = "culprit" if record.rank in finding.culprits else "waits" if record.rank in finding.waiting else ""
            name = json.dumps(f"{finding.code} {finding.name}")
            args = json.dumps(_short({"summary": finding.summary, "certainty": finding.certainty, "rank": part}))
            yield at, f'{{"name":{name},"cat":"finding,{finding.severity}","ph":"i","s":"p",{where},"args":{args}'
    ending = record.ending
    if ending is not None and _known(ending.at_ns):
        name = json.dumps(one_line(str(ending), 200))
        yield ending.at_ns, f'{{"name":{name},"cat":"ending","ph":"i","s":"p",{where}'


def _moments(record: RankRecord) -> Iterator[int]:
    for call in record.calls:
        yield from filter(_known, (call.entered_ns, call.done_ns))
    for event in record.history:
        yield from filter(_known, (event.began_ns, event.ended_ns))
    yield from (mark.at_ns for mark in record.marks if _known(mark.at_ns))
    yield from (sample.at_ns for sample in record.samples if _known(sample.at_ns))
    if record.ending is not None and _known(record.ending.at_ns):
        yield record.ending.at_ns


def _in_time(record: RankRecord) -> list[Call]:
    """The calls whose begin is known, in the order of time: several threads may have made them."""
    return sorted((call for call in record.calls if _known(call.entered_ns)), key=lambda call: call.entered_ns)


def _known(moment: int) -> bool:
    return 0 < moment < 1 << 63


def _place(site: Site) -> dict[str, str]:
    return {} if site == NO_SITE else {"line": f"{site} in {site.function}"}


def _short(facts: dict[str, str]) -> dict[str, str]:
    return {name: one_line(text, _TEXT) for name, text in facts.items() if text}


def _us(ns: int) -> str:
    """Microseconds, exactly."""
    ns = max(0, ns)
    return f"{ns // 1000}.{ns % 1000:03d}" if ns % 1000 else f"{ns // 1000}"
