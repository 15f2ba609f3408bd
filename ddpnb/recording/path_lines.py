"""Which lines a rank executed, by its path: between two decisions lies one way."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from ddpnb.recording.calls import Call, Site
from ddpnb.recording.executed_lines import ExecutedLine, ExecutedLines, Window
from ddpnb.recording.path import MOST, A, B, Code, Kind, Path

#: operators of CALL words that are no calls of the rank's black box
SET_UP: Final = frozenset({"init_process_group", "new_group", "destroy_process_group"})
_STEP = "optimizer step"
_MOST_BLOCKS = 10_000  # that are gone through from one decision to the next
_KEPT = 128  # windows


class _Function:
    """The lines of one code, as rows of the table that all share."""

    def __init__(self, code: Code, rows: dict[Site, int]) -> None:
        self._starts = [block.start for block in code.blocks]
        self._blocks = code.blocks
        self._at = [start for start, _ in code.lines]
        name = code.function.rpartition(".")[2]
        # A function begins with an instruction on the line of its `def`, which executes nothing.
        first = len(code.lines) > 1 and code.lines[1][0] == 2 and code.function != "<module>"
        # The methods of a data class are text of no file.
        unshown = code.file[:1] == "<" or not code.user
        self._rows = [
            -1
            if unshown or not line or (first and place == 0)
            else rows.setdefault(Site(code.file, line, name), len(rows))
            for place, (_, line) in enumerate(code.lines)
        ]
        self._known: dict[tuple[int, int, bool], tuple[int, ...]] = {}

    def between(self, at: int, to: int, *, continued: bool) -> tuple[int, ...]:
        """The rows of the lines from one offset to another, both included; without the first where that has only been ``continued``."""
        known = self._known.get((at, to, continued))
        if known is None:
            known = self._known[at, to, continued] = tuple(dict.fromkeys(self._walked(at, to, continued)))
        return known

    def _walked(self, at: int, to: int, continued: bool) -> list[int]:
        found: list[int] = []
        if continued:
            place = bisect_right(self._at, at)
            last = bisect_right(self._starts, at)
            end = self._blocks[last - 1].end if last else 0
            if at <= to < end:
                return [row for row in self._rows[place : bisect_right(self._at, to)] if row >= 0]
            if place < len(self._at) and self._at[place] < end:
                at = self._at[place]
            elif last and self._blocks[last - 1].next >= 0:
                at = self._blocks[last - 1].next
        for _ in range(_MOST_BLOCKS):
            place = bisect_right(self._starts, at) - 1
            if place < 0:
                break
            block = self._blocks[place]
            if block.start <= to < block.end:
                return found + self._within(min(at, to), to)
            found += self._within(at, block.end - 1)
            if block.next < 0:  # a decision that was not recorded, since it ran hot, or an exception
                break
            at = block.next
        return found + self._within(to, to)

    def line(self, offset: int) -> int:
        """The row of the line of an instruction; -1 where there is none."""
        return self._rows[max(bisect_right(self._at, offset) - 1, 0)] if self._rows else -1

    def around(self, jump: int) -> list[int]:
        """The rows of the loop around a jump, or of all lines where it is in none."""
        place = bisect_right(self._starts, jump) - 1
        loop = self._blocks[place].loop if place >= 0 else -1
        blocks = [block for block in self._blocks if loop in (-1, block.loop, block.start)]
        return [row for block in blocks for row in self._within(block.start, block.end - 1)]

    def _within(self, first: int, last: int) -> list[int]:
        begin = max(bisect_right(self._at, first) - 1, 0)
        return [row for row in self._rows[begin : bisect_right(self._at, last)] if row >= 0]


_known: dict[int, tuple[weakref.ref[Path], ExecutedLines]] = {}  # by the id of the path


def executed(
    path: Path, calls: Sequence[Call] = (), before: int = 0, stepped_ns: Mapping[int, int] = {}
) -> ExecutedLines:
    """The lines that the main thread executed, in windows from one collective or optimizer step to the next.

    Args:
        path: of the rank.
        calls: its recorded calls: when they began is when windows began.
        before: how many calls of the run are older than these.
        stepped_ns: when windows that begin at optimizer steps began, by the number of the step.
    """
    known = _known.get(id(path))
    if known is None or known[0]() is not path:
        times = {before + place: call.entered_ns for place, call in enumerate(calls, 1)}
        gone = partial(_forget, id(path))
        known = _known[id(path)] = weakref.ref(path, gone), _followed(path, times, stepped_ns)
    return known[1]


def _forget(key: int, _: object) -> None:
    _known.pop(key, None)


def _followed(path: Path, called_ns: Mapping[int, int], stepped_ns: Mapping[int, int]) -> ExecutedLines:
    rows: dict[Site, int] = {}
    functions = [_Function(code, rows) for code in path.codes]
    steps_text = path.texts.index(_STEP) if _STEP in path.texts else -1
    set_up = {number for number, text in enumerate(path.texts) if text in SET_UP}
    windows: list[tuple[int, int, dict[int, None]]] = [(0, 0, {})]
    begun = stepped = 0
    ran = windows[0][2]
    stack: list[list[int]] = []  # [code, offset, whether its line has begun before it] of the open frames
    hot: dict[int, None] = {}  # rows of which it is not known in which windows they ran

    def to(offset: int) -> None:
        if stack and stack[-1][0] < len(functions):
            code, at, continued = stack[-1]
            ran.update(dict.fromkeys(functions[code].between(at, offset, continued=bool(continued))))
            stack[-1][1:] = offset, True

    for words in list(path.threads.values())[:1]:
        for one in words:
            kind, a, b = one & 15, one >> A & MOST, one >> B & MOST
            if kind == Kind.BRANCH:
                to(a)
                if stack:
                    stack[-1][1:] = b, False
            elif kind in (Kind.ENTER, Kind.RESUME):
                if b:
                    to(b - 1)
                stack.append([a, 0, False])
            elif kind in (Kind.RETURN, Kind.YIELD, Kind.UNWIND):
                to(a)
                if stack:
                    stack.pop()
            elif kind == Kind.RAISE:
                to(a)
            elif kind == Kind.HANDLED:
                if stack:
                    stack[-1][1:] = a, False
            elif kind in (Kind.CALL, Kind.MARK):
                if a:
                    to(a - 1)
                if (kind == Kind.CALL and b not in set_up) or (kind == Kind.MARK and b == steps_text):
                    begun, stepped = (begun + 1, stepped) if kind == Kind.CALL else (begun, stepped + 1)
                    ran = dict(hot)
                    windows.append((begun, stepped, ran))
            elif kind == Kind.HOT:
                if a < len(functions):
                    hot.update(dict.fromkeys(functions[a].around(b)))
            elif kind == Kind.COLD:
                hot.clear()
            elif kind == Kind.BASE:
                stack.clear()
            elif kind == Kind.FRAME:
                if a < len(functions):
                    ran.update(dict.fromkeys(functions[a].between(b, b, continued=False)))
                stack.append([a, b, True])
    if stack and stack[-1][0] < len(functions) and not stack[-1][2]:
        code, at, _ = stack[-1]  # it went there, and nothing is recorded after that
        ran.update(dict.fromkeys(functions[code].between(at, at, continued=False)))
    began, before = [0], (0, 0)
    for calls, steps, _ in windows[1:]:
        now = called_ns.get(calls, 0) if calls != before[0] else stepped_ns.get(steps, 0)
        began.append(max(began[-1], now))
        before = calls, steps
    open_rows = [functions[code].line(at) for code, at, _ in stack if code < len(functions)]
    within = next((list(rows)[row] for row in reversed(open_rows) if row >= 0), None)
    return replace(_table(rows, windows, began), within=within)


def _table(
    rows: Mapping[Site, int], windows: Sequence[tuple[int, int, dict[int, None]]], began_ns: Sequence[int]
) -> ExecutedLines:
    first, last, counts = [0] * len(rows), [0] * len(rows), [0] * len(rows)
    for number, (_, _, ran) in enumerate(windows, 1):
        for row in ran:
            first[row] = first[row] or number
            last[row] = number
            counts[row] += 1
    index = {row: place for place, row in enumerate(row for row in range(len(rows)) if counts[row])}
    sites = list(rows)
    paths: dict[tuple[int, ...], int] = {}
    kept: list[Window] = []
    for number, (calls, steps, ran) in enumerate(windows, 1):
        if number > len(windows) - _KEPT:
            path = tuple(index[row] for row in ran)
            kept.append(Window(number, began_ns[number - 1], calls, steps, paths.setdefault(path, len(paths))))
    return ExecutedLines(
        tuple(ExecutedLine(sites[row], first[row], last[row], counts[row]) for row in index), tuple(kept), tuple(paths)
    )
