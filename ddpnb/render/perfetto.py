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
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any

from ddpnb.errors import UsageError
from ddpnb.recording.calls import NO_SITE, Call, CallState, Group, Site
from ddpnb.recording.collectives import Direction, direction_of, message_key, root_of
from ddpnb.recording.events.runs import Checkpoint, Compilation
from ddpnb.recording.files import write_parts
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.marks import HeldTime
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.rules.diagnose import diagnose
from ddpnb.texts import one_line

_STEPS, _PHASES, _CALLS = 1, 2, 10  # tracks of a rank
_LANES = 16  # of the calls of one group that overlap
_SEEN = frozenset(state for state in CallState if state.seen_by_peers)
_IN_FLIGHT = frozenset(state for state in CallState if state.in_flight)
_PIDS = range(1, 1 << 31)
_OWN_PIDS = 1_000_000  # of ranks whose process IDs are not known or not unique
_TIDS = 1_000_000_000  # those of a track must be unique in the whole trace
_TRACKS = 1000  # of a rank
_EVENTS_IN_PART = 2000
_LEVEL = 4  # of compression
_TEXT = 300  # characters

_Event = dict[str, Any]
_Item = tuple[int, int, int, _Event, Any]  # moment in ns, rank, number, the event, the key of its flow


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
    trace = _Trace(recording, diagnosis)
    encode = json.JSONEncoder(separators=(",", ":")).encode
    yield '{"displayTimeUnit":"ms","otherData":{"source":"ddpnb","clock":"the first event is at 0"},"traceEvents":[\n'
    yield ",\n".join(map(encode, trace.names()))
    streams = [
        made for _, record in sorted(recording.ranks.items()) for made in (trace.calls(record), trace.rest(record))
    ]
    merged = heapq.merge(*streams)  # no two items have one moment, rank and number
    while part := list(islice(merged, _EVENTS_IN_PART)):
        yield ",\n" + ",\n".join(
            encode({**event, "ts": _us(moment - trace.origin), **trace.flow(key)}) for moment, _, _, event, key in part
        )
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


class _Trace:
    """What is known of all ranks: who meets whom, from when to when, and the tracks of each rank."""

    def __init__(self, recording: Recording, diagnosis: Diagnosis) -> None:
        moments = [at for record in recording.ranks.values() for at in _ends(record)]
        if not moments:
            raise UsageError(
                "This recording has no times: there is nothing to draw.", "Record the job with ddpnb run --save FILE."
            )
        self._recording = recording
        began = recording.curves.origin_ns if recording.curves is not None else 0
        self.origin = min(*moments, began) if _known(began) else min(moments)
        self._end = max(*moments, recording.taken_ns if _known(recording.taken_ns) else 0)
        pids = {rank: record.pid for rank, record in recording.ranks.items()}
        unique = len(set(pids.values())) == len(pids) and all(pid in _PIDS for pid in pids.values())
        self._pids = pids if unique else {rank: _OWN_PIDS + rank for rank in pids}
        self._groups: dict[str, tuple[int, Group]] = {}  # in the order of their tracks
        self._meetings: dict[Any, _Meeting] = {}
        self._lanes: dict[tuple[int, str], int] = {}
        self._flows = 0
        self._findings: list[tuple[_Event, dict[int, str], dict[int, int]]] = []
        for finding in diagnosis.findings:
            parts = dict.fromkeys(finding.concerned, "")
            parts |= dict.fromkeys(finding.waiting, "waits") | dict.fromkeys(finding.culprits, "culprit")
            event = {
                "name": f"{finding.code} {finding.name}", "cat": f"finding,{finding.severity}", "ph": "i", "s": "p",
                "args": _short({"summary": finding.summary, "certainty": finding.certainty}),
            }  # fmt: skip
            self._findings.append((event, parts, dict(finding.moments)))
        for rank, record in sorted(recording.ranks.items()):
            self._read(rank, record)

    def _read(self, rank: int, record: RankRecord) -> None:
        """Who meets whom, and how many tracks the calls of each group need."""
        free: dict[str, _Lanes] = {}
        for call in _in_time(record):
            group, at = call.group.key, call.entered_ns
            self._groups.setdefault(group, (len(self._groups), call.group))
            free.setdefault(group, _Lanes()).take(at, self._end_of(call))
            key = self._key(rank, call)
            if key is None or call.state not in _SEEN:
                continue
            meeting = self._meetings.setdefault(key, _Meeting())
            meeting.count += 1
            if at >= meeting.last_ns:
                meeting.last_ns, meeting.last_rank = at, rank
            if direction_of(call.op) is Direction.FROM_ROOT and root_of(call) == rank:
                meeting.root_ns = at
        for key, lanes in free.items():
            self._lanes[rank, key] = len(lanes.ends)

    def _key(self, rank: int, call: Call) -> Any:
        """What the calls of one collective have in common, or a send and its receive."""
        group, _ = self._groups[call.group.key]
        return (group, call.seq, call.op) if call.seq else message_key(call, rank, group)

    def _end_of(self, call: Call) -> int:
        if call.state in _IN_FLIGHT:
            return max(call.entered_ns, self._end)
        ended = call.done_ns if _known(call.done_ns) else call.issued_ns
        return max(call.entered_ns, ended if _known(ended) else 0)

    def _where(self, rank: int, track: int) -> _Event:
        return {"pid": self._pids[rank], "tid": _TIDS + rank * _TRACKS + min(track, _TRACKS - 1)}

    def _track(self, key: str, lane: int) -> int:
        return _CALLS + self._groups[key][0] * _LANES + lane

    def flow(self, key: Any) -> _Event:
        """The part of an event that is the next call of this meeting: the flow passes them in the order of arrival."""
        meeting = self._meetings.get(key)
        if meeting is None or meeting.count < 2:
            return {}
        if not meeting.flow:
            self._flows += 1
            meeting.flow = self._flows
        meeting.passed += 1
        into = {"flow_in": True} if meeting.passed > 1 else {}
        return {"bind_id": meeting.flow, **into, **({"flow_out": True} if meeting.passed < meeting.count else {})}

    # -- what is shown

    def names(self) -> Iterator[_Event]:
        """The names and the order of processes and tracks."""
        for place, (rank, record) in enumerate(sorted(self._recording.ranks.items())):
            process = {"ph": "M", "pid": self._pids[rank]}
            yield {"name": "process_name", **process, "args": {"name": f"rank {rank}"}}
            yield {"name": "process_sort_index", **process, "args": {"sort_index": place}}
            if record.device:
                yield {"name": "process_labels", **process, "args": {"labels": one_line(record.device, 40)}}
            tracks = [(_STEPS, "optimizer steps"), (_PHASES, "phases")]
            for key, (_, group) in self._groups.items():
                for lane in range(self._lanes.get((rank, key), 0)):
                    more = f" ({lane + 1})" if lane else ""
                    tracks.append((self._track(key, lane), f"{one_line(str(group), 80)}{more}"))
            for track, name in tracks:
                where = self._where(rank, track)
                yield {"name": "thread_name", "ph": "M", **where, "args": {"name": name}}
                yield {"name": "thread_sort_index", "ph": "M", **where, "args": {"sort_index": track}}

    def calls(self, record: RankRecord) -> Iterator[_Item]:
        """A slice for each call; in it, how long it waited until the ranks that it needs had called it."""
        rank, free = record.rank, dict[str, _Lanes]()
        about: dict[
            tuple[int, int, int], tuple[str, dict[str, str]]
        ] = {}  # of what calls share, which the recording keeps alive
        for number, call in enumerate(_in_time(record)):
            begin, end, group = call.entered_ns, self._end_of(call), call.group.key
            where = self._where(rank, self._track(group, free.setdefault(group, _Lanes()).take(begin, end)))
            state, key = call.state.name.lower(), self._key(rank, call)
            shared = id(call.signature), id(call.group), id(call.site)
            if shared not in about:
                facts = {"group": str(call.group), "call": str(call.signature), **_place(call.site)}
                about[shared] = one_line(call.op, 100), _short(facts)
            op, facts = about[shared]
            name = one_line(call.title, 100) if call.is_p2p else f"{op} #{call.seq}"
            event = {
                "name": name,
                "cat": f"call,{state}",
                "ph": "X",
                **where,
                "dur": _us(end - begin),
            }
            event["args"] = {**facts, "number": call.number, "state": state}
            yield begin, rank, 2 * number, event, key if call.state in _SEEN else None
            until, whom = self._waits(rank, call, key, end)
            if until > begin:
                waits = {"name": "waiting", "cat": "waiting", "ph": "X", **where, "dur": _us(until - begin)}
                yield begin, rank, 2 * number + 1, {**waits, "args": {"for": whom}}, None

    def _waits(self, rank: int, call: Call, key: Any, end: int) -> tuple[int, str]:
        """Until when a call waited for other ranks, and for which; (0, "") if it did not, or that is not known."""
        meeting = self._meetings.get(key) if call.seq and call.state in _SEEN else None
        if meeting is None:
            return 0, ""
        direction, root = direction_of(call.op), root_of(call)
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

    def rest(self, record: RankRecord) -> Iterator[_Item]:
        """Steps, phases, counters, findings and the ending of a rank, in the order of time."""
        made = (self._steps(record), self._phases(record), self._counters(record), self._named(record))
        known = sorted((one for events in made for one in events if _known(one[0])), key=itemgetter(0))
        for number, (moment, event) in enumerate(known):
            yield moment, record.rank, number - len(known), event, None

    def _steps(self, record: RankRecord) -> Iterator[tuple[int, _Event]]:
        """A slice from each optimizer step to the next, and the moments of backward passes."""
        where, before = self._where(record.rank, _STEPS), 0
        for mark in record.marks:
            if not _known(mark.at_ns):
                continue
            if mark.kind == "step" and 0 < before <= mark.at_ns:
                step = {"name": f"step {mark.steps}", "cat": "step", "ph": "X", "dur": _us(mark.at_ns - before)}
                yield before, {**step, **where}
            if mark.kind in ("begin", "step"):
                before = mark.at_ns
            elif mark.kind in ("backward", "end"):
                what = "end of backward" if mark.kind == "backward" else "end of the run"
                yield mark.at_ns, {"name": what, "cat": "mark", "ph": "i", "s": "t", **where}

    def _phases(self, record: RankRecord) -> Iterator[tuple[int, _Event]]:
        """Start-up, groups, models, data loaders, checkpoints, holds: slices, and moments of what takes no time."""
        lanes, held = _Lanes(), HeldTime()
        holds = [*held.take(record.marks), *([(held.since, max(held.since, self._end))] if held.since else [])]
        for begin, end in holds:
            where = self._where(record.rank, _PHASES + min(lanes.take(begin, end), _CALLS - _PHASES - 1))
            yield begin, {"name": "held", "cat": "held", "ph": "X", "dur": _us(end - begin), **where}
        for phase in sorted(record.history, key=lambda phase: phase.began_ns):
            begin, ended = phase.began_ns, phase.ended_ns
            if not _known(begin):
                continue
            end = self._end if phase.state == "open" else max(begin, ended if _known(ended) else 0)
            title = f"{phase.number}: {phase.name}" if isinstance(phase, Checkpoint) else phase.title
            if isinstance(phase, Compilation):
                title = f"compilation of {phase.site.function}{f' ({phase.part})' if phase.part else ''}"
            args = _short({"state": phase.state, **_place(phase.site)})
            track = _PHASES + (min(lanes.take(begin, end), _CALLS - _PHASES - 1) if end > begin else 0)
            how = {"ph": "X", "dur": _us(end - begin)} if end > begin else {"ph": "i", "s": "t"}
            where = self._where(record.rank, track)
            yield begin, {"name": one_line(title, 100), "cat": "event", **how, **where, "args": args}

    def _counters(self, record: RankRecord) -> Iterator[tuple[int, _Event]]:
        """Losses and norms of gradients that were sampled, and the memory when the recording was taken."""
        found: list[tuple[int, str, float | None]] = []
        for sample in record.samples:
            model = f", model {sample.model}" if sample.model else ""
            norms = [digest.norm for digest in sample.digests.values() if digest.norm is not None]
            if sample.kind in ("backward", "loss"):
                found.append((sample.at_ns, f"loss{model}", sample.loss))
            elif sample.kind == "gradients" and norms:
                found.append((sample.at_ns, f"norm of the gradients{model}", math.hypot(*norms)))
        process, taken = record.process, self._recording.taken_ns
        found += [(taken, "memory, MB", process.memory / 1e6 or None)]
        found += [(taken, "GPU memory, MB", process.device_memory / 1e6 or None)]
        where = self._where(record.rank, _STEPS)
        for moment, name, value in found:
            if value is not None and math.isfinite(value):
                yield moment, {"name": name, "ph": "C", **where, "args": {"value": value}}

    def _named(self, record: RankRecord) -> Iterator[tuple[int, _Event]]:
        """Where findings show on this rank, and how it ended."""
        where = self._where(record.rank, _PHASES)
        for event, parts, moments in self._findings:
            at = moments.get(record.rank, self._recording.taken_ns if record.rank in parts else 0)
            part = {"rank": parts[record.rank]} if parts.get(record.rank) else {}
            yield at, {**event, **where, "args": {**event["args"], **part}}
        if record.ending is not None:
            name = one_line(str(record.ending), 200)
            yield record.ending.at_ns, {"name": name, "cat": "ending", "ph": "i", "s": "p", **where}


def _ends(record: RankRecord) -> Iterator[int]:
    """The known moments of a rank that can be its first or last one."""
    found = [at for call in record.calls for at in (call.entered_ns, call.done_ns)]
    found += [at for event in record.history for at in (event.began_ns, event.ended_ns)]
    found += [mark.at_ns for mark in record.marks]
    found += [sample.at_ns for sample in record.samples if sample.kind != "earlier"]
    found += [record.ending.at_ns] if record.ending is not None else []
    known = [at for at in found if _known(at)]
    return iter((min(known), max(known)) if known else ())


def _in_time(record: RankRecord) -> list[Call]:
    """The calls whose begin is known, in the order of time: several threads may have made them."""
    return sorted((call for call in record.calls if _known(call.entered_ns)), key=lambda call: call.entered_ns)


def _known(moment: int) -> bool:
    return 0 < moment < 1 << 63


def _us(ns: int) -> float:
    """Microseconds."""
    ns = max(0, ns)
    return ns / 1000 if ns % 1000 else ns // 1000


def _place(site: Site) -> dict[str, str]:
    return {} if site == NO_SITE else {"line": f"{site} in {site.function}"}


def _short(facts: dict[str, str]) -> dict[str, str]:
    return {name: one_line(text, _TEXT) for name, text in facts.items() if text}
