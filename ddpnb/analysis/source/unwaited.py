"""Works that nobody waits for in time (DDP316), by the syntax tree.

``dist.all_reduce(x, async_op=True)`` comes back before the numbers are there: until ``wait()``, ``x``
may be neither read nor changed. Followed is straight-line code alone, and a work that is put into a
list, returned, kept in an attribute or passed on is trusted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from ddpnb.analysis.source.branches import FUNCTIONS
from ddpnb.analysis.source.expressions import dotted, last_name, shown
from ddpnb.analysis.source.handed import handed_back, outside
from ddpnb.analysis.source.modules import Project
from ddpnb.analysis.source.operations import Operations
from ddpnb.analysis.source.scopes import Scope
from ddpnb.analysis.source.touches import Touches

Kind = Literal["used-before-wait", "never-waited", "thrown-away"]


@dataclass(frozen=True, slots=True)
class Unwaited:
    """An asynchronous call whose tensor is used too early, or for which nobody waits at all."""

    line: int  # of the call
    use_line: int | None  # where the tensor is read or changed; None: nowhere in this function
    tensor: str
    op: str
    kind: Kind
    changed: bool = False  # the use changes the tensor
    function: str = "<module>"

    @property
    def reason(self) -> str:
        """What is wrong, in plain words."""
        done = "changed" if self.changed else "used"
        if self.use_line is None:
            dropped = ", and with it the transfer may be dropped" if self.op in _ALWAYS_ASYNC else ""
            how = "its work is thrown away" if self.kind == "thrown-away" else "nothing is done with its work"
            return f"Nobody waits for the {self.op}: {how}{dropped}."
        where = f"`{self.tensor}` is {done} in line {self.use_line}"
        if self.kind == "used-before-wait":
            return f"{where}, before wait()."
        how = "the work is thrown away" if self.kind == "thrown-away" else "nobody waits for the work"
        return f"{where}, and {how}."

    @property
    def advice(self) -> str:
        return (
            f"Keep the work and call wait() on it before line {self.use_line}."
            if self.use_line
            else "Keep the work, and call wait() on it before the tensor is used again and before the function ends."
        )


# For each operation the arguments that it fills or changes, and those that it only reads: (position, name).
_FILLS = {
    "all_reduce": (0, "tensor"), "broadcast": (0, "tensor"), "reduce": (0, "tensor"), "irecv": (0, "tensor"),
    "all_gather": (0, "tensor_list"), "all_gather_into_tensor": (0, "output_tensor"),
    "all_gather_single": (0, "output_tensor"), "_all_gather_base": (0, "output_tensor"),
    "gather": (1, "gather_list"), "scatter": (0, "tensor"), "reduce_scatter": (0, "output"),
    "reduce_scatter_tensor": (0, "output"), "reduce_scatter_single": (0, "output"),
    "_reduce_scatter_base": (0, "output"), "all_to_all": (0, "output_tensor_list"), "all_to_all_single": (0, "output"),
    "all_reduce_coalesced": (0, "tensors"),
}  # fmt: skip
_READS = {
    "isend": (0, "tensor"), "all_gather": (1, "tensor"), "all_gather_into_tensor": (1, "input_tensor"),
    "all_gather_single": (1, "input_tensor"), "_all_gather_base": (1, "input_tensor"), "gather": (0, "tensor"),
    "reduce_scatter": (1, "input_list"), "reduce_scatter_tensor": (1, "input"), "reduce_scatter_single": (1, "input"),
    "_reduce_scatter_base": (1, "input"), "all_to_all": (1, "input_tensor_list"), "all_to_all_single": (1, "input"),
}  # fmt: skip
_ALWAYS_ASYNC = frozenset({"isend", "irecv", "batch_isend_irecv"})
_WAITING = frozenset({
    "wait", "synchronize", "wait_stream", "wait_event", "barrier", "monitored_barrier", "wait_all", "waitall",
    "wait_for_everyone", "result", "join", "is_completed", "destroy_process_group", "stream", "_coalescing_manager",
    "wait_tensor", "finish", "flush", "exit", "_exit",
})  # fmt: skip
_BLOCKS = ("body", "orelse", "finalbody")


@dataclass(slots=True)
class _Work:
    call: ast.Call
    op: str
    handle: str  # empty: thrown away
    fills: set[str]
    reads: set[str]
    kind: Kind
    names: tuple[str, ...] = field(default=())

    @property
    def tensors(self) -> set[str]:
        return self.fills | self.reads


@dataclass(frozen=True, slots=True)
class _Use:
    line: int
    tensor: str
    changed: bool


_Outcome = _Use | Literal["trusted", "over", "on"]


@lru_cache(maxsize=16)
def _found(source: str) -> tuple[Unwaited, ...]:
    project = Project({"<source>": source}, ["<source>"])
    operations = Operations(project)
    found: list[Unwaited] = []
    for scope in project.scopes():
        try:
            found += _Function(project, operations, scope).unwaited()
        except RecursionError:
            continue
    return tuple(sorted(found, key=lambda one: (one.line, one.use_line or 0)))


def unwaited(source: str) -> list[Unwaited]:
    """The asynchronous calls of one file whose tensors are used before anybody waited for them."""
    return list(_found(source))


class _Function:
    def __init__(self, project: Project, operations: Operations, scope: Scope) -> None:
        self._project = project
        self._operations = operations
        self._scope = scope
        self._touches = Touches(project, scope)

    def unwaited(self) -> Iterator[Unwaited]:
        for work, path in self._works(self._scope.node.body, []):
            use = self._follow_up(work, path)
            lost = not work.handle or not self._handle_is_read(work.handle)
            name = self._scope.name.rpartition(".")[2] or "<module>"
            if isinstance(use, _Use):
                kind: Kind = work.kind if not work.handle else "never-waited" if lost else "used-before-wait"
                yield Unwaited(work.call.lineno, use.line, use.tensor, work.op, kind, use.changed, name)
            elif use != "trusted" and lost:
                kind = work.kind if not work.handle else "never-waited"
                yield Unwaited(work.call.lineno, None, ", ".join(work.names), work.op, kind, False, name)

    # -- finding

    def _works(
        self, statements: list[ast.stmt], above: list[tuple[list[ast.stmt], int]]
    ) -> Iterator[tuple[_Work, list[tuple[list[ast.stmt], int]]]]:
        """Each asynchronous call that is a statement, with the way to it: blocks and places in them."""
        for index, statement in enumerate(statements):
            path = [*above, (statements, index)]
            if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                continue
            work = self._work(statement)
            if work is not None:
                yield work, path
            if isinstance(statement, (ast.With, ast.AsyncWith)) and _waits(statement, header=True):
                continue  # a stream or a coalescing manager orders what is in it
            for block in _inner(statement):
                yield from self._works(block, path)

    def _work(self, statement: ast.stmt) -> _Work | None:
        handle = ""
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            value = statement.value
            if isinstance(value, ast.Call) and not self._is_asynchronous(value):
                return self._handed(value, target)
            if not isinstance(target, ast.Name):
                return None  # kept in an attribute, or unpacked
            handle = target.id if target.id != "_" else ""
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            handle, value = statement.target.id, statement.value
        elif isinstance(statement, ast.Expr):
            value = statement.value
            kept_in = _appended_to(statement)
            if isinstance(value, ast.Call) and kept_in and self._is_bound_here(kept_in):
                handle, value = kept_in, value.args[0]
        else:
            return None
        if not isinstance(value, ast.Call) or not self._is_asynchronous(value):
            return None
        op = self._operations.operation(self._scope, value) or ""
        fills, reads = _tensors(value, _FILLS.get(op)), _tensors(value, _READS.get(op))
        kind: Kind = "never-waited" if handle else "thrown-away"
        shown_names = tuple(shown(one) for one in value.args[:1])
        return _Work(value, op, handle, fills, reads - fills, kind, shown_names)

    def _handed(self, call: ast.Call, target: ast.expr) -> _Work | None:
        """``parts, work = gather(x)``: a function of the project has begun the call."""
        called = self._project.function(self._project.resolve(self._scope, call.func))
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        if called is None or called.owner or not all(isinstance(one, ast.Name) for one in names):
            return None
        inside = _Function(self._project, self._operations, called)
        handed = handed_back(called, inside._is_asynchronous)
        if handed is None or (handed.place is None) == isinstance(target, ast.Tuple):
            return None
        targets = [one.id for one in names if isinstance(one, ast.Name)]
        if len(targets) != len(handed.returned):
            return None
        handle = targets[handed.place or 0]
        op = self._operations.operation(called, handed.call) or ""
        fills, reads = (
            outside(handed, called, call, targets, _tensors(handed.call, places.get(op))) for places in (_FILLS, _READS)
        )
        names_shown = tuple(shown(one) for one in call.args[:1])
        return _Work(call, op, handle if handle != "_" else "", fills, reads - fills, "never-waited", names_shown)

    def _is_bound_here(self, name: str) -> bool:
        """Whether a list belongs to this function alone: nobody else can wait for what is in it."""
        node = self._scope.node
        return not isinstance(node, ast.Module) and any(
            isinstance(part, ast.Assign)
            and isinstance(part.value, (ast.List, ast.Call))
            and any(isinstance(one, ast.Name) and one.id == name for one in part.targets)
            for part in ast.walk(node)
        )

    def _is_asynchronous(self, call: ast.Call) -> bool:
        found = self._project.resolve(self._scope, call.func)
        name = found.name if found is not None and not found.path else (dotted(call.func) or "") if not found else ""
        path, _, last = name.rpartition(".")
        if path not in ("torch.distributed", "torch.distributed.distributed_c10d", "dist"):
            return False
        if last in _ALWAYS_ASYNC:
            return True
        return last in _FILLS and any(
            one.arg == "async_op" and isinstance(one.value, ast.Constant) and one.value.value is True
            for one in call.keywords
        )

    def _handle_is_read(self, name: str) -> bool:
        """Whether anything at all is done with the work, in this function or one within or around it."""
        node = self._scope.node
        if any(isinstance(part, (ast.Global, ast.Nonlocal)) and name in part.names for part in ast.walk(node)):
            return True
        return any(
            isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load) for part in ast.walk(node)
        )

    # -- following

    def _follow_up(self, work: _Work, path: list[tuple[list[ast.stmt], int]]) -> _Outcome:
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
                others = [one for one in parent.body if one is not own]
                if any(_mentions(one, work.handle) for one in others):
                    return "trusted"  # the next round may wait
        return "on"

    def _follow(self, work: _Work, statements: list[ast.stmt]) -> _Outcome:
        for statement in statements:
            if not work.tensors and not work.names:
                return "trusted"
            if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                if work.handle and _mentions(statement, work.handle):
                    return "trusted"
                continue
            inner = _inner(statement)
            outcome = self._compound(work, statement, inner) if inner else self._simple(work, statement)
            if outcome != "on":
                return outcome
        return "on"

    def _compound(self, work: _Work, statement: ast.stmt, inner: list[list[ast.stmt]]) -> _Outcome:
        for part in _header(statement):
            outcome = self._part(work, part)
            if outcome != "on":
                return outcome
        if work.handle and _mentions(statement, work.handle):
            return "trusted"
        waits = _waits(statement)
        if isinstance(statement, (ast.Try, ast.TryStar)) and waits:
            return "trusted"
        for block in inner:
            # What an arm binds anew is bound anew in that arm alone.
            branch = _Work(work.call, work.op, work.handle, set(work.fills), set(work.reads), work.kind, work.names)
            outcome = self._follow(branch, block)
            if isinstance(outcome, _Use):
                return outcome
        return "trusted" if waits else "on"

    def _simple(self, work: _Work, statement: ast.stmt) -> _Outcome:
        if work.handle and _mentions(statement, work.handle) and _appended_to(statement) != work.handle:
            rebinds = [part for part in ast.walk(statement) if isinstance(part, ast.Name) and part.id == work.handle]
            if not all(isinstance(part.ctx, ast.Store) for part in rebinds):
                return "trusted"
        outcome = self._part(work, statement)
        if outcome != "on":
            return outcome
        if isinstance(statement, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
            return "over"
        return "on"

    def _part(self, work: _Work, part: ast.AST) -> _Outcome:
        if _waits(part):
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


def _appended_to(statement: ast.stmt) -> str:
    """``works`` of ``works.append(something)``."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    func = call.func if isinstance(call, ast.Call) and len(call.args) == 1 else None
    if not isinstance(func, ast.Attribute) or func.attr != "append":
        return ""
    return func.value.id if isinstance(func.value, ast.Name) else ""


def _tensors(call: ast.Call, place: tuple[int, str] | None) -> set[str]:
    """The variable at an argument's place; none if it is anything but a variable."""
    if place is None:
        return set()
    given = call.args[place[0]] if len(call.args) > place[0] else None
    for one in call.keywords:
        if one.arg == place[1]:
            given = one.value
    while isinstance(given, (ast.Attribute, ast.Call)):  # x.data, x.detach(), x.view(-1): the same memory
        inner = given.func if isinstance(given, ast.Call) else given
        if not isinstance(inner, ast.Attribute) or inner.attr not in ("data", "detach", "view", "flatten"):
            break
        given = inner.value
    name = dotted(given) if given is not None else None
    return {name} if name is not None else set()


def _inner(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a statement."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return []
    found = [block for name in _BLOCKS if (block := getattr(statement, name, None))]
    found += [one.body for one in getattr(statement, "handlers", [])]
    return found + [case.body for case in getattr(statement, "cases", [])]


def _header(statement: ast.stmt) -> list[ast.AST]:
    """What of a statement is evaluated before its blocks."""
    names = ("test", "iter", "subject", "target")
    found: list[ast.AST] = [part for name in names if isinstance(part := getattr(statement, name, None), ast.AST)]
    return found + [one.context_expr for one in getattr(statement, "items", [])]


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def _waits(node: ast.AST, *, header: bool = False) -> bool:
    """Whether something in here waits, for whatever it is: then nothing is sure any more."""
    parts = _header(node) if header and isinstance(node, ast.stmt) else [node]
    return any(
        isinstance(part, ast.Call) and last_name(part.func) in _WAITING for one in parts for part in ast.walk(one)
    )
