"""Asynchronous collectives not waited for in time (DDP316), from the syntax tree.

``dist.all_reduce(x, async_op=True)`` returns before the result is complete: until ``wait()``, ``x``
may be neither read nor changed. Followed is straight-line code alone, and a work that is put into a
list, returned, kept in an attribute or passed on is trusted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ddpnb.recording.source.branches import FUNCTIONS, tree
from ddpnb.recording.source.touches import Touches
from ddpnb.recording.source.works import (
    ALWAYS_ASYNC,
    Kind,
    Names,
    Work,
    Works,
    appended_to,
    header,
    inner_blocks,
    waits,
)


@dataclass(frozen=True, slots=True)
class Unwaited:
    """An asynchronous call whose tensor is used too early, or whose work is never waited for."""

    line: int  # of the call
    use_line: int | None  # where the tensor is read or changed; None: nowhere in this function
    tensor: str
    op: str
    kind: Kind
    changed: bool = False  # the use changes the tensor
    function: str = "<module>"

    @property
    def reason(self) -> str:
        """What is wrong."""
        done = "changed" if self.changed else "used"
        if self.use_line is None:
            dropped = ", and the transfer may be dropped with it" if self.op in ALWAYS_ASYNC else ""
            how = "its work is discarded" if self.kind == "thrown-away" else "its work is never used"
            return f"Nothing waits for the {self.op}: {how}{dropped}."
        where = f"`{self.tensor}` is {done} at line {self.use_line}"
        if self.kind == "used-before-wait":
            return f"{where}, before wait()."
        how = "the work is discarded" if self.kind == "thrown-away" else "nothing waits for the work"
        return f"{where}, but {how}."

    @property
    def advice(self) -> str:
        return (
            f"Keep the work and call wait() on it before line {self.use_line}."
            if self.use_line
            else "Keep the work, and call wait() on it before the tensor is used again and before the function ends."
        )


@dataclass(frozen=True, slots=True)
class _Use:
    line: int
    tensor: str
    changed: bool


_Outcome = _Use | Literal["trusted", "over", "on"]


@lru_cache(maxsize=16)
def _found(source: str) -> tuple[Unwaited, ...]:
    parsed = tree(source)
    unwaited: list[Unwaited] = []
    if parsed is None:
        return ()
    names = Names(parsed)
    for node in ast.walk(parsed):
        if isinstance(node, (ast.Module, *FUNCTIONS)):
            with suppress(RecursionError):
                unwaited += _Function(names, node).unwaited()
    return tuple(sorted(unwaited, key=lambda work: (work.line, work.use_line or 0)))


def unwaited(source: str) -> list[Unwaited]:
    """The asynchronous calls of one file whose tensors are used before wait()."""
    return list(_found(source))


def changed_between(source: str, call: int, wait: int) -> tuple[int, ...]:
    """The lines after a call and before its wait that change something in place: ``x /= 2``, ``x[0] = y``, ``x.mul_(2)``.

    Of a wait that comes first in the text: those of the loop around both, which is then in its next iteration.
    """
    parsed = tree(source)
    if parsed is None:
        return ()
    lines = {node.lineno for node in ast.walk(parsed) if _in_place(node)}  # type: ignore[attr-defined]
    if call < wait:
        return tuple(sorted(line for line in lines if call < line < wait))
    loops = [node for node in ast.walk(parsed) if isinstance(node, (ast.For, ast.AsyncFor, ast.While))]
    around = [one for one in loops if one.lineno < wait and call <= (one.end_lineno or 0)]
    if not around:
        return ()
    first, last = around[-1].lineno, around[-1].end_lineno or 0  # the innermost
    return tuple(sorted(line for line in lines if call < line <= last or first < line < wait))


def _in_place(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Subscript) for target in node.targets)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr.endswith("_") and not node.func.attr.endswith("__")
    return isinstance(node, ast.AugAssign)


class _Function:
    def __init__(self, names: Names, function: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._function = function
        self._works = Works(names, function)
        self._touches = Touches(names, function)

    def unwaited(self) -> Iterator[Unwaited]:
        for work, path in self._works.of(self._function.body, []):
            use = self._follow_up(work, path)
            lost = not work.handle or not self._handle_is_read(work.handle)
            name = getattr(self._function, "name", "<module>")
            if isinstance(use, _Use):
                kind: Kind = work.kind if not work.handle else "never-waited" if lost else "used-before-wait"
                yield Unwaited(work.call.lineno, use.line, use.tensor, work.op, kind, use.changed, name)
            elif use != "trusted" and lost:
                kind = work.kind if not work.handle else "never-waited"
                yield Unwaited(work.call.lineno, None, ", ".join(work.names), work.op, kind, False, name)

    def _handle_is_read(self, name: str) -> bool:
        """Whether the work is used at all, in this function or one inside or around it."""
        node = self._function
        if any(isinstance(part, (ast.Global, ast.Nonlocal)) and name in part.names for part in ast.walk(node)):
            return True
        return any(
            isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load) for part in ast.walk(node)
        )

    # -- following

    def _follow_up(self, work: Work, path: list[tuple[list[ast.stmt], int]]) -> _Outcome:
        """What happens to the tensors from the call to the end of the function."""
        for depth in range(len(path) - 1, -1, -1):
            statements, index = path[depth]
            outcome = self._follow(work, statements[index + 1 :])
            if outcome != "on":
                return outcome
            parent = path[depth - 1][0][path[depth - 1][1]] if depth else None
            if isinstance(parent, (ast.Try, ast.TryStar, ast.Match)):
                return "trusted"
            if isinstance(parent, (ast.For, ast.AsyncFor, ast.While)) and work.handle:
                own = path[depth][0][path[depth][1]]
                others = [statement for statement in parent.body if statement is not own]
                if any(_mentions(statement, work.handle) for statement in others):
                    return "trusted"  # the next iteration may wait
        return "on"

    def _follow(self, work: Work, statements: list[ast.stmt]) -> _Outcome:
        for statement in statements:
            if not work.tensors and not work.names:
                return "trusted"
            if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                if work.handle and _mentions(statement, work.handle):
                    return "trusted"
                continue
            inner = inner_blocks(statement)
            outcome = self._compound(work, statement, inner) if inner else self._simple(work, statement)
            if outcome != "on":
                return outcome
        return "on"

    def _compound(self, work: Work, statement: ast.stmt, inner: list[list[ast.stmt]]) -> _Outcome:
        for part in header(statement):
            outcome = self._part(work, part)
            if outcome != "on":
                return outcome
        if work.handle and _mentions(statement, work.handle):
            return "trusted"
        waiting = waits(statement)
        if isinstance(statement, (ast.Try, ast.TryStar)) and waiting:
            return "trusted"
        for block in inner:
            # What one arm binds again is bound in that arm alone.
            branch = Work(work.call, work.op, work.handle, set(work.fills), set(work.reads), work.kind, work.names)
            outcome = self._follow(branch, block)
            if isinstance(outcome, _Use):
                return outcome
        return "trusted" if waiting else "on"

    def _simple(self, work: Work, statement: ast.stmt) -> _Outcome:
        if work.handle and _mentions(statement, work.handle) and appended_to(statement) != work.handle:
            rebinds = [part for part in ast.walk(statement) if isinstance(part, ast.Name) and part.id == work.handle]
            if not all(isinstance(part.ctx, ast.Store) for part in rebinds):
                return "trusted"
        outcome = self._part(work, statement)
        if outcome != "on":
            return outcome
        if isinstance(statement, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
            return "over"
        return "on"

    def _part(self, work: Work, part: ast.AST) -> _Outcome:
        if waits(part):
            return "trusted"
        for name in sorted(work.tensors):
            for touch in self._touches.of(part, name):
                if touch.what == "unclear":
                    return "trusted"
                if touch.what == "rebound":
                    work.fills.discard(name)
                    work.reads.discard(name)
                    break
                changed = touch.what == "changed"
                lost = not work.handle or not self._handle_is_read(work.handle)
                if changed or (name in work.fills and (touch.what == "read" or lost)):
                    return _Use(touch.line, name, changed)
        return "on"


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))
