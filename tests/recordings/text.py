"""A recording as text without times: ``python -m tests.recordings.text FILE``, and what ``git diff`` shows of it.

Two recordings of one scenario have the same text if the ranks did the same.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields

from ddpnb.recording import recording_file
from ddpnb.recording.calls import Call
from ddpnb.recording.events import Event
from ddpnb.recording.recording import RankRecord, Recording

# Of events: what stands before them, the environment, and what counts on from run to run in one process.
_LEFT_OUT = frozenset({"site", "state", "variables", "number", "call", "path"})
_NUMBER = re.compile(r"\d+\.\d+(e[-+]?\d+)?|\b\d{4,}\b")


def text(recording: Recording) -> str:
    """The ranks one after another: how each ended or what it does, its calls, events, stack and lines."""
    lines = [f"{recording.world_size} ranks; source text of {', '.join(sorted(recording.sources)) or 'no file'}"]
    for rank, record in sorted(recording.ranks.items()):
        lines += [f"rank {rank}", *("  " + line for line in _rank(record))]
    return "\n".join(lines) + "\n"


def masked(value: str) -> str:
    """A text with numbers that may be measured replaced."""
    return _NUMBER.sub("N", value)


def kinds(recording: Recording) -> set[str]:
    """What kinds of facts were recorded: operations, paths, and events with their fields. What ranks race for is left out."""
    records = recording.ranks.values()
    paths = {"path"} if any(record.path is not None for record in records) else set()
    return (
        paths
        | {call.op for record in records for call in record.calls}
        | {
            f"{type(event).__name__}.{field.name}"
            for record in records
            for event in record.history
            for field in fields(event)
        }
    )


def _rank(record: RankRecord) -> Iterator[str]:
    if record.ending is None:
        yield f"{record.process.activity}, waits on {masked(record.process.waits_on) or 'nothing'}"
    else:
        ending = record.ending
        yield f"{ending.how}, code {ending.code} {ending.exception} {masked(ending.message)}".rstrip()
    yield from map(_call, record.calls)
    yield from map(_event, record.history)
    if record.main_stack is not None:
        yield "stack: " + " > ".join(
            f"{frame.function}:{frame.line}" for frame in record.main_stack.frames if frame.user
        )
    for kind, count in sorted(Counter(sample.kind for sample in record.samples).items()):
        yield f"samples: {count} {kind}"
    for child in record.children:
        yield f"child: {masked(child.command)} {child.status}"
    if record.executed is not None:
        files: dict[str, set[int]] = {}
        for line in record.executed.lines:
            files.setdefault(line.site.file, set()).add(line.site.line)
        yield from (f"lines of {file}: {_ranges(numbers)}" for file, numbers in sorted(files.items()))


def _call(call: Call) -> str:
    signature, site = call.signature, call.site
    shapes = " ".join(str(list(shape)) for shape in signature.shapes[:4])
    what = f"{signature.op} {shapes} {' '.join(signature.dtypes[:4])}".rstrip()
    place = f"{site.file}:{site.line} in {site.function}" if site is not None else "nowhere"
    return f"call: {what}, group {call.group.label} seq {call.seq}, {call.state.name}, {place}"


def _event(event: Event) -> str:
    shown = [
        f"{field.name}={masked(str(getattr(event, field.name)))[:200]}"
        for field in fields(event)
        if field.name not in _LEFT_OUT
        if not field.name.endswith(("_ns", "_s")) and getattr(event, field.name) not in (None, "", (), 0, {})
    ]
    place = f" at {event.site}" if event.site is not None else ""
    return f"event {type(event).__name__} {event.state}{place}: {', '.join(shown)}"


def _ranges(numbers: set[int]) -> str:
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{first}-{last}" if first != last else str(first) for first, last in ranges)


if __name__ == "__main__":
    print(text(recording_file.load(sys.argv[1])), end="")
