"""What a trace shows of each rank: calls, steps, phases, counters, findings."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from ddpnb.model.calls import NO_SITE, Call, CallState, Site
from ddpnb.model.collectives import Direction, root_of
from ddpnb.model.events.runs import Checkpoint, Compilation
from ddpnb.model.findings import Diagnosis
from ddpnb.model.recording import RankRecord
from ddpnb.render.perfetto.trace import CALLS, IN_FLIGHT, PHASES, SEEN, STEPS, Lanes, Trace, in_time, known, us
from ddpnb.render.text import one_line

_TEXT = 300  # characters
_STATES = {state: state.name.lower() for state in CallState}

# moment in ns, rank, number, the event up to where its flow would be, the key of its flow
Item = tuple[int, int, int, str, Any]


def streams(trace: Trace, rank: int, diagnosis: Diagnosis) -> Iterable[Iterable[Item]]:
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


def _calls(trace: Trace, record: RankRecord) -> Iterator[Item]:
    """A slice for each call; in it, how long it waited until the ranks that it needs had called it."""
    rank, number, pid = record.rank, 0, trace.pids[record.rank]
    free: dict[str, Lanes] = {}
    about: dict[
        tuple[int, int, int], str
    ] = {}  # of calls that share what they refer to, which the recording keeps alive
    for call in in_time(record):
        begin, end, group, kind = call.entered_ns, trace.end_of(call), call.group.key, trace.kind(call.signature)
        lane = free.setdefault(group, Lanes()).take(begin, end)
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
            f'{{"name":"{name}","cat":"call,{state}","ph":"X",{where},"dur":{us(end - begin)},'
            f'"args":{args},"number":{call.number},"state":"{state}"}}',
            key if call.state in SEEN else None,
        )  # fmt: skip
        until, whom = _waits(trace, rank, call, kind.direction, key, end)
        if until > begin:
            text = f'{{"name":"waiting","cat":"waiting","ph":"X",{where},"dur":{us(until - begin)},"args":{{"for":"{whom}"}}'
            yield begin, rank, number + 1, text, None


def _waits(trace: Trace, rank: int, call: Call, direction: Direction, key: Any, end: int) -> tuple[int, str]:
    """Until when a call waited for other ranks, and for which; (0, "") if it did not, or that is not known."""
    meeting = trace.meetings.get(key) if call.seq and call.state in SEEN else None
    if meeting is None:
        return 0, ""
    if direction is not Direction.ALL_TO_ALL:
        root = root_of(call)
        if direction is Direction.TO_ROOT and rank != root:
            return 0, ""
        if direction is Direction.FROM_ROOT and root is not None:
            if rank == root or not (meeting.root_ns or call.state in IN_FLIGHT):
                return 0, ""
            return (min(meeting.root_ns, end) if meeting.root_ns else end), f"rank {root}"
    missing = len(call.group.ranks) - meeting.count
    if missing > 0:
        return (end, f"{missing} missing rank{'s' * (missing > 1)}") if call.state in IN_FLIGHT else (0, "")
    return min(meeting.last_ns, end), f"rank {meeting.last_rank}"


def _steps(trace: Trace, record: RankRecord) -> Iterator[tuple[int, str]]:
    """A slice from each optimizer step to the next, and the moments of backward passes."""
    where = f'"pid":{trace.pids[record.rank]},"tid":{trace.tid(record.rank, STEPS)}'
    before = 0
    for mark in record.marks:
        if not known(mark.at_ns):
            continue
        if mark.kind == "step" and 0 < before <= mark.at_ns:
            yield before, f'{{"name":"step {mark.steps}","cat":"step","ph":"X",{where},"dur":{us(mark.at_ns - before)}'
        if mark.kind in ("begin", "step"):
            before = mark.at_ns
        else:
            what = "end of backward" if mark.kind == "backward" else "end of the run"
            yield mark.at_ns, f'{{"name":"{what}","cat":"mark","ph":"i","s":"t",{where}'


def _phases(trace: Trace, record: RankRecord) -> Iterator[tuple[int, str]]:
    """Start-up, groups, models, data loaders, checkpoints: slices, and moments of what takes no time."""
    pid, lanes = trace.pids[record.rank], Lanes()
    for event in sorted(record.history, key=lambda one: one.began_ns):
        begin = event.began_ns
        if not known(begin):
            continue
        end = trace.end if event.state == "open" else max(begin, event.ended_ns if known(event.ended_ns) else 0)
        title = f"{event.number}: {event.name}" if isinstance(event, Checkpoint) else event.title
        if isinstance(event, Compilation):
            title = f"compilation of {event.site.function}{f' ({event.part})' if event.part else ''}"
        name = json.dumps(one_line(title, 100))
        args = json.dumps(_short({"state": event.state, **_place(event.site)}))
        if end == begin:
            tid = trace.tid(record.rank, PHASES)
            yield begin, f'{{"name":{name},"cat":"event","ph":"i","s":"t","pid":{pid},"tid":{tid},"args":{args}'
        else:
            tid = trace.tid(record.rank, PHASES + min(lanes.take(begin, end), CALLS - PHASES - 1))
            yield (
                begin,
                f'{{"name":{name},"cat":"event","ph":"X","pid":{pid},"tid":{tid},"dur":{us(end - begin)},"args":{args}',
            )


def _counters(trace: Trace, record: RankRecord) -> Iterator[tuple[int, str]]:
    """Losses and norms of gradients that were sampled, and the memory when the recording was taken."""
    where = f'"pid":{trace.pids[record.rank]},"tid":{trace.tid(record.rank, STEPS)}'
    for sample in record.samples:
        value: float | None = None
        if sample.kind in ("backward", "loss"):
            what, value = "loss", sample.loss
        else:
            what, norms = "norm of the gradients", [one.norm for one in sample.digests.values() if one.norm is not None]
            if sample.kind == "gradients" and norms:
                value = math.hypot(*norms)
        if value is not None and math.isfinite(value) and known(sample.at_ns):
            name = json.dumps(f"{what}, model {sample.model}" if sample.model else what)
            yield sample.at_ns, f'{{"name":{name},"ph":"C",{where},"args":{{"value":{value!r}}}'
    process, taken = record.process, trace.recording.taken_ns
    for what, count in (("memory, MB", process.memory), ("GPU memory, MB", process.device_memory)):
        if count > 0 and known(taken):
            yield taken, f'{{"name":"{what}","ph":"C",{where},"args":{{"value":{count / 1e6!r}}}'


def _findings(trace: Trace, record: RankRecord, diagnosis: Diagnosis) -> Iterator[tuple[int, str]]:
    """Where findings show on this rank, and how it ended."""
    where = f'"pid":{trace.pids[record.rank]},"tid":{trace.tid(record.rank, PHASES)}'
    for finding in diagnosis.findings:
        parts, moments = trace.named_by(finding)
        at = moments.get(record.rank, trace.recording.taken_ns if record.rank in parts else 0)
        if known(at):
            part = parts.get(record.rank, "")
            name = json.dumps(f"{finding.code} {finding.name}")
            args = json.dumps(_short({"summary": finding.summary, "certainty": finding.certainty, "rank": part}))
            yield at, f'{{"name":{name},"cat":"finding,{finding.severity}","ph":"i","s":"p",{where},"args":{args}'
    ending = record.ending
    if ending is not None and known(ending.at_ns):
        name = json.dumps(one_line(str(ending), 200))
        yield ending.at_ns, f'{{"name":{name},"cat":"ending","ph":"i","s":"p",{where}'


def _place(site: Site) -> dict[str, str]:
    return {} if site == NO_SITE else {"line": f"{site} in {site.function}"}


def _short(facts: dict[str, str]) -> dict[str, str]:
    return {name: one_line(text, _TEXT) for name, text in facts.items() if text}
