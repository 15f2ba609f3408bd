"""Paths of small programs: each rank runs a piece of source in this process, and a tracer writes its words.

    ranks = run('''
    def main(rank):
        for step in range(4):
            if rank == 1 and step == 2:  # skip
                continue
            all_reduce()
    ''', 3)

``all_reduce(group)``, ``broadcast(group)``, ``send(peer)`` and ``recv(peer)`` are calls; ``all_reduce_fails()`` raises. A rank waits in the first call that the
others do not make, or that does not match: its path is cut behind it (``Job.paths``).
"""

from __future__ import annotations

import sys
import textwrap
from collections import defaultdict
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from ddpnb.recorder.stacks.path_codes import described
from ddpnb.recording.path import MOST, Code, Kind, Path, number, word

TOOL = 4
FILE = "/home/user/train.py"
WORLD = "default_pg"


class Stop(BaseException):
    """The rank is killed."""


class Tracer:
    """Writes the words of what runs in one thread."""

    def __init__(self, rank: int, world: int, files: dict[str, bool], hot: int = 0, dark: int = 0) -> None:
        self.rank, self.world, self.files, self.hot, self.dark = rank, world, files, hot, dark
        self.darkened: set[CodeType] = set()  # not recorded now
        self.words: list[int] = []
        self.codes: dict[CodeType, int] = {}
        self.texts: dict[str, int] = {}
        self.counts: dict[str, int] = defaultdict(int)
        self.calls: list[tuple[int, str, str, int, int]] = []  # words behind it, operator, group, number, peer
        self.fired: dict[tuple[CodeType, int], int] = defaultdict(int)

    def text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def site(self, depth: int) -> int:
        frame = sys._getframe(depth)
        while frame is not None and not self.recorded(frame.f_code):
            frame = frame.f_back
        return frame.f_lasti + 1 if frame is not None else 0

    def recorded(self, code: CodeType) -> bool:
        return code in self.codes and code not in self.darkened

    def base(self, depth: int) -> None:
        frame = sys._getframe(depth)
        frames: list[int] = []
        while frame is not None:
            if self.recorded(frame.f_code):
                frames.append(word(Kind.FRAME, self.codes[frame.f_code], max(frame.f_lasti, 0)))
            frame = frame.f_back
        self.words += [word(Kind.BASE, len(frames)), *reversed(frames)]

    def begin(self, kind: Kind):
        def begins(code: CodeType, offset: int) -> Any:
            if code.co_filename not in self.files:
                return None
            if code in self.darkened:
                return None
            frame = sys._getframe(1)
            while frame.f_code is not code:
                frame = frame.f_back
            frame = frame.f_back
            while frame is not None and not self.recorded(frame.f_code):
                frame = frame.f_back
            number = self.codes.setdefault(code, len(self.codes))
            self.words.append(word(kind, number, frame.f_lasti + 1 if frame is not None else 0))
            self.fired[code, -1] += 1
            if self.fired[code, -1] == self.dark:
                self.darkened.add(code)
                self.words.append(word(Kind.HOT, number, MOST))
                self.base(2)
            return None

        return begins

    def branch(self, code: CodeType, offset: int, to: int) -> None:
        if not self.recorded(code):
            return
        if self.hot:
            self.fired[code, offset] += 1
            if self.fired[code, offset] == self.hot:
                self.words.append(word(Kind.HOT, self.codes[code], offset))
            if self.fired[code, offset] >= self.hot:
                return
        self.words.append(word(Kind.BRANCH, offset, to))

    def ends(self, kind: Kind):
        def end(code: CodeType, offset: int, value: Any) -> None:
            if self.recorded(code):
                extra = self.text(type(value).__name__) if isinstance(value, BaseException) else 0
                if kind in (Kind.RETURN, Kind.YIELD):
                    extra = 0
                self.words.append(word(kind, offset, extra))

        return end

    # -- what programs call

    def call(self, operator: str, group: str = WORLD, peer: int | None = None) -> None:
        self.fired.clear()
        site = self.site(3)
        seq = 0
        if peer is None:
            self.counts[group] += 1
            seq = self.counts[group]
        self.words += [word(Kind.CALL, site, self.text(operator), self.text(group)), number(seq, peer)]
        self.calls.append((len(self.words), operator, group, seq, -1 if peer is None else peer))
        if self.darkened:
            self.darkened.clear()
            self.words.append(word(Kind.COLD))
            self.base(3)

    def mark(self, text: str) -> None:
        self.words.append(word(Kind.MARK, self.site(3), self.text(text)))

    def path(self) -> Path:
        codes = tuple(described(code, user=self.files[code.co_filename]) for code in self.codes)
        return Path({"MainThread": tuple(self.words)}, codes, tuple(self.texts))


@dataclass
class Job:
    """``paths``: of each rank as far as it came; ``whole``: as if no call would wait."""

    paths: dict[int, Path]
    whole: dict[int, Path]
    source: str
    groups: dict[str, tuple[int, ...]]
    hangs: dict[int, str] = field(default_factory=dict[int, str])  # in which call

    def line(self, mark: str) -> int:
        found = [n for n, line in enumerate(self.source.splitlines(), 1) if line.endswith(f"# {mark}")]
        assert len(found) == 1, f"{len(found)} lines are marked {mark!r}"
        return found[0]


def run(
    source: str,
    world: int,
    *,
    groups: dict[str, tuple[int, ...]] | None = None,
    helpers: dict[str, str] | None = None,
    library: str = "",
    traced: bool = False,
    hot: int = 0,
    dark: int = 0,
    killed: dict[int, int] | None = None,
) -> Job:
    """Run ``main(rank)`` of the source as each rank, and let calls wait as collectives do.

    Args:
        groups: members of further groups.
        helpers: sources of modules that the program can import, by name.
        library: source of a framework (``user=False``), whose names the program sees.
        traced: whether the framework is recorded.
        hot: jumps that go so often between two calls are not recorded any more.
        dark: functions that begin so often between two calls are not recorded any more.
        killed: by rank, behind which of its calls it disappears.
    """
    text = textwrap.dedent(source).strip("\n") + "\n"
    files = {
        FILE: True,
        **{f"/home/user/{name}.py": True for name in helpers or ()},
        **({"/site/library.py": False} if traced else {}),
    }
    members = {WORLD: tuple(range(world)), **(groups or {})}
    tracers = [_traced(text, rank, world, files, helpers or {}, library, hot, dark) for rank in range(world)]
    if killed:
        for rank, calls in killed.items():
            tracer = tracers[rank]
            del tracer.calls[calls:]
            del tracer.words[tracer.calls[-1][0] :]
    whole = {rank: tracer.path() for rank, tracer in enumerate(tracers)}
    stands = _stands(tracers, members)
    hangs = {}
    for rank, at in stands.items():
        tracer = tracers[rank]
        end, operator, *_ = tracer.calls[at]
        del tracer.words[end:]
        hangs[rank] = operator
    return Job({rank: tracer.path() for rank, tracer in enumerate(tracers)}, whole, text, members, hangs)


def _traced(
    text: str, rank: int, world: int, files: dict[str, bool], helpers: dict[str, str], library: str, hot: int, dark: int
) -> Tracer:
    tracer = Tracer(rank, world, files, hot, dark)
    names: dict[str, Any] = {
        "__name__": "__main__",
        "rank": rank,
        "all_reduce": lambda group=WORLD: tracer.call("all_reduce", group),
        "all_reduce_fails": lambda: _failed(tracer.call("all_reduce")),
        "broadcast": lambda group=WORLD: tracer.call("broadcast", group),
        "send": lambda peer: tracer.call("send", WORLD, peer),
        "recv": lambda peer: tracer.call("recv", WORLD, peer),
        "step": lambda: tracer.mark("optimizer step"),
        "kill": _killed,
    }
    if library:
        exec(compile(textwrap.dedent(library), "/site/library.py", "exec"), names)  # before the tracer
    code = compile(text, FILE, "exec")
    events = sys.monitoring.events
    hooks = {
        events.PY_START: tracer.begin(Kind.ENTER),
        events.PY_RESUME: tracer.begin(Kind.RESUME),
        events.PY_THROW: lambda code, offset, error: tracer.begin(Kind.RESUME)(code, offset),
        events.PY_RETURN: tracer.ends(Kind.RETURN),
        events.PY_YIELD: tracer.ends(Kind.YIELD),
        events.PY_UNWIND: tracer.ends(Kind.UNWIND),
        events.RAISE: tracer.ends(Kind.RAISE),
        events.EXCEPTION_HANDLED: tracer.ends(Kind.HANDLED),
        events.BRANCH: tracer.branch,
    }
    sys.monitoring.use_tool_id(TOOL, "paths")
    try:
        for event, hook in hooks.items():
            sys.monitoring.register_callback(TOOL, event, hook)
        sys.monitoring.set_events(TOOL, sum(hooks))
        for name, helper in helpers.items():
            place = f"/home/user/{name}.py"
            exec(compile(textwrap.dedent(helper).strip("\n") + "\n", place, "exec"), names)
        exec(code, names)
        names["main"](rank)
    except (Stop, Exception):  # the rank ends by it
        pass
    finally:
        sys.monitoring.set_events(TOOL, 0)
        for event in hooks:
            sys.monitoring.register_callback(TOOL, event, None)
        sys.monitoring.free_tool_id(TOOL)
    return tracer


def _failed(_made: None) -> None:
    raise RuntimeError("connection closed by peer")


def _killed() -> None:
    raise Stop


def _stands(tracers: list[Tracer], members: dict[str, tuple[int, ...]]) -> dict[int, int]:
    """By rank, the number of the call in which it stands; calls wait as collectives do, messages for their peers."""
    at = [0] * len(tracers)
    while True:
        moved = False
        for rank, tracer in enumerate(tracers):
            if at[rank] >= len(tracer.calls):
                continue
            _, operator, group, seq, peer = tracer.calls[at[rank]]
            if peer >= 0:
                opposite = {"send": "recv", "recv": "send"}[operator]
                need = sum(1 for one in tracer.calls[: at[rank] + 1] if one[1] == operator and one[4] == peer)
                theirs = tracers[peer].calls[: at[peer] + 1]
                ready = sum(1 for one in theirs if one[1] == opposite and one[4] == rank) >= need
                if operator == "send":  # it is buffered
                    ready = True
            else:
                ready = all(
                    any(one[1:4] == (operator, group, seq) for one in tracers[other].calls[: at[other] + 1])
                    for other in members[group]
                )
            if ready:
                at[rank] += 1
                moved = True
        if not moved:
            return {rank: n for rank, n in enumerate(at) if n < len(tracers[rank].calls)}


__all__ = ["FILE", "MOST", "WORLD", "Code", "Job", "Stop", "run"]
