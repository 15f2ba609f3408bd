"""A Recording without what belongs to one machine and one moment: paths, process and thread IDs, ports, clocks."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.executed import HOOK
from ddpnb.recording import path as paths
from ddpnb.recording.path import KIND, MOST, A, B, Kind, word
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.stacks import Frame

ROOT = Path(__file__).parents[2]
_DURATIONS = frozenset({"thread_ns", "cpu_ns", "data_ns"})  # all other nanoseconds are of the monotonic clock
_BEGIN_NS = 1_000_000_000
_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d{4,5}\b|(?<=localhost:)\d{4,5}\b|(?<=port )\d{4,5}\b")
_FIXED = re.compile(r"/[\w./-]*/ddpnb-pitfalls-\w+")  # where fixed scripts of pitfalls are written
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,16}\b")


def portable(recording: Recording, folder: Path) -> Recording:
    """The same Recording as if it came from ``/project``, run by ``/env/bin/python``.

    Args:
        recording: of ranks on this machine.
        folder: of the test, with files that it wrote.
    """
    clocks = [value for name, value in _values(recording) if _is_clock(name) and value > 0]
    began = min(clocks, default=0)
    ids: dict[int, int] = {}
    text = texts(folder)

    def change(name: str, value: Any) -> Any:
        if isinstance(value, str):
            return text(value)
        if type(value) is int and value > 0:
            if _is_clock(name):
                return value - began + _BEGIN_NS
            if name in ("pid", "native_id", "thread"):
                return ids.setdefault(value, 1001 + len(ids))
        return value

    return _changed(replace(recording, curves=None, account=None), change)


def texts(folder: Path) -> Callable[[str], str]:
    """A function that takes what belongs to this machine out of a text; ports are numbered in the order in which they occur."""
    places = [
        (str(folder), "/run"),
        (sys.prefix, "/env"),
        (sys.base_prefix, "/python"),
        (str(ROOT), "/project"),
        (tempfile.gettempdir(), "/tmp"),
        (str(Path.home()), "/home"),
    ]
    ports: dict[str, str] = {}

    def text(value: str) -> str:
        value = _FIXED.sub("/project/ddpnb/pitfalls", value)
        for path, name in places:
            value = value.replace(path, name) if len(path) > 1 else value
        value = _ADDRESS.sub("0x7f", value)
        value = _PORT.sub(lambda port: ports.setdefault(port[0], str(29500 + len(ports))), value)
        return ports.get(value, value)

    return text


def _is_clock(name: str) -> bool:
    return name.endswith("_ns") and name not in _DURATIONS


def _values(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All numbers below a value, with the names of their fields."""
    if is_dataclass(value):
        for field in fields(value):
            yield from _values(getattr(value, field.name), field.name)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _values(item, name)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _values(item, name)
    elif type(value) is int:
        yield name, value


def _changed(value: Any, change: Callable[[str, Any], Any], name: str = "") -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        new = {f.name: _changed(getattr(value, f.name), change, f.name) for f in fields(value) if f.init}
        return replace(value, **new)
    if isinstance(value, (tuple, list)):
        return type(value)(_changed(item, change, name) for item in value)
    if isinstance(value, Mapping):
        return {change("", key): _changed(item, change, str(key)) for key, item in value.items()}
    return change(name, value)


def without_tracer(recording: Recording) -> Recording:
    """A recording without the tracer that checks what findings name: its lines and frames would count as the user's."""
    sources = {file: source for file, source in recording.sources.items() if not _of_tracer(file)}
    return replace(recording, ranks={n: _untraced(rank) for n, rank in recording.ranks.items()}, sources=sources)


def _untraced(record: RankRecord) -> RankRecord:
    ending, lines = record.ending, record.lines
    if ending is not None:
        ending = replace(ending, frames=_own(ending.frames))
    if lines is not None:
        kept = [n for n, line in enumerate(lines.lines) if not _of_tracer(line.site.file)]
        places = {old: new for new, old in enumerate(kept)}
        paths = tuple(tuple(places[n] for n in path if n in places) for path in lines.paths)
        lines = replace(lines, lines=tuple(lines.lines[n] for n in kept), paths=paths)
    stacks = tuple(replace(stack, frames=_own(stack.frames)) for stack in record.stacks)
    path = None if record.path is None else _untraced_path(record.path)
    history = tuple(event for event in record.history if not _of_tracer(event.site.file))
    return replace(record, ending=ending, lines=lines, stacks=stacks, path=path, history=history)


def _untraced_path(path: paths.Path) -> paths.Path:
    tracer = {number for number, code in enumerate(path.codes) if _of_tracer(code.file)}
    return replace(path, threads={name: _without(words, tracer) for name, words in path.threads.items()})


def _without(words: Sequence[int], codes: Collection[int]) -> tuple[int, ...]:
    """The words without those of these codes: what they call is called by their callers."""
    found: list[int] = []
    stack: list[int | None] = []  # of the open frames that are left out, the site; of others nothing
    at = 0
    while at < len(words):
        one = words[at]
        at += 1
        kind, first, site = one & KIND, one >> A & MOST, stack[-1] if stack else None
        if kind == Kind.BASE:
            frames = words[at : at + first]
            at += first
            kept = [frame for frame in frames if frame >> A & MOST not in codes]
            found += (word(Kind.BASE, len(kept)), *kept)
            stack, last = [], 0
            for frame in frames:
                stack.append(last if frame >> A & MOST in codes else None)
                last = last if frame >> A & MOST in codes else (frame >> B & MOST) + 1
        elif kind in (Kind.ENTER, Kind.RESUME):
            if site is not None:
                one = word(kind, first, site)
            if first in codes:
                stack.append(one >> B & MOST)
            else:
                stack.append(None)
                found.append(one)
        elif kind in (Kind.RETURN, Kind.YIELD, Kind.UNWIND):
            if stack:
                stack.pop()
            if site is None:
                found.append(one)
        elif kind in (Kind.CALL, Kind.MARK):
            found.append(one if site is None else one & ~(MOST << A) | site << A)
        elif kind == Kind.HOT:
            found += [one] if first not in codes else []
        elif site is None or kind in (Kind.NUMBER, Kind.COLD, Kind.GAP):
            found.append(one)
    return tuple(found)


def _own(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    return tuple(frame for frame in frames if not _of_tracer(frame.file))


def _of_tracer(file: str) -> bool:
    return file.startswith((str(HOOK), f"/project/{HOOK.relative_to(ROOT)}"))
