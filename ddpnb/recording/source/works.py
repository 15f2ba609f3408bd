"""The works of one function: asynchronous calls and their tensors."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from ddpnb.recording.source.branches import FUNCTIONS
from ddpnb.recording.source.expressions import dotted, keyword, last_name, shown
from ddpnb.recording.source.modules import Project, Scope
from ddpnb.recording.source.operations import Operations

Kind = Literal["used-before-wait", "never-waited", "thrown-away"]

# For each operation the argument that it fills or changes, and the one that it only reads: (position, name).
_Argument = tuple[int, str] | None
_TENSOR, _OUTPUT, _INPUT = (0, "tensor"), (0, "output"), (1, "input")
_GATHERED = ((0, "output_tensor"), (1, "input_tensor"))
_ARGUMENTS: dict[str, tuple[_Argument, _Argument]] = {
    **dict.fromkeys(("all_reduce", "broadcast", "reduce", "irecv", "scatter"), (_TENSOR, None)),
    **dict.fromkeys(("all_gather_into_tensor", "all_gather_single", "_all_gather_base"), _GATHERED),
    **dict.fromkeys(("gather_into_tensor", "gather_single"), ((1, "gather_tensor"), _TENSOR)),
    **dict.fromkeys(("reduce_scatter_tensor", "reduce_scatter_single", "_reduce_scatter_base", "all_to_all_single"),
                    (_OUTPUT, _INPUT)),
    "isend": (None, _TENSOR), "all_gather": ((0, "tensor_list"), (1, "tensor")),
    "gather": ((1, "gather_list"), _TENSOR), "reduce_scatter": (_OUTPUT, (1, "input_list")),
    "all_to_all": ((0, "output_tensor_list"), (1, "input_tensor_list")), "all_reduce_coalesced": ((0, "tensors"), None),
}  # fmt: skip
ALWAYS_ASYNC = frozenset({"isend", "irecv", "batch_isend_irecv"})
_WAITING = frozenset({
    "wait", "synchronize", "wait_stream", "wait_event", "barrier", "monitored_barrier", "wait_all", "waitall",
    "wait_for_everyone", "result", "join", "is_completed", "destroy_process_group", "stream", "_coalescing_manager",
    "wait_tensor", "finish", "flush", "exit", "_exit",
})  # fmt: skip
_BLOCKS = ("body", "orelse", "finalbody")


@dataclass(slots=True)
class Work:
    """An asynchronous call, with the tensors that it fills and those that it only reads."""

    call: ast.Call
    op: str
    handle: str  # empty: discarded
    fills: set[str]
    reads: set[str]
    kind: Kind
    names: tuple[str, ...] = field(default=())

    @property
    def tensors(self) -> set[str]:
        return self.fills | self.reads


class Works:
    """Finds the works of a function in its syntax tree."""

    def __init__(self, project: Project, operations: Operations, scope: Scope) -> None:
        self._project = project
        self._operations = operations
        self._scope = scope

    def of(
        self, statements: list[ast.stmt], above: list[tuple[list[ast.stmt], int]]
    ) -> Iterator[tuple[Work, list[tuple[list[ast.stmt], int]]]]:
        """Each asynchronous call that is a statement, with its path: blocks and indices in them."""
        for index, statement in enumerate(statements):
            path = [*above, (statements, index)]
            if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                continue
            work = self._work(statement)
            if work is not None:
                yield work, path
            if isinstance(statement, (ast.With, ast.AsyncWith)) and waits(statement, only_header=True):
                continue  # a stream or a coalescing manager orders its calls
            for block in inner_blocks(statement):
                yield from self.of(block, path)

    def _work(self, statement: ast.stmt) -> Work | None:
        handle = ""
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            value = statement.value
            if isinstance(value, ast.Call) and not self.is_asynchronous(value):
                return self._from_function(value, target)
            if not isinstance(target, ast.Name):
                return None  # kept in an attribute, or unpacked
            handle = target.id if target.id != "_" else ""
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            handle, value = statement.target.id, statement.value
        elif isinstance(statement, ast.Expr):
            value = statement.value
            kept_in = appended_to(statement)
            if isinstance(value, ast.Call) and kept_in and self._is_bound_here(kept_in):
                handle, value = kept_in, value.args[0]
        else:
            return None
        if not isinstance(value, ast.Call) or not self.is_asynchronous(value):
            return None
        op, fills, reads = self.tensors_of(value)
        kind: Kind = "never-waited" if handle else "thrown-away"
        shown_names = tuple(shown(part) for part in value.args[:1])
        return Work(value, op, handle, fills, reads - fills, kind, shown_names)

    def _from_function(self, call: ast.Call, target: ast.expr) -> Work | None:
        """``parts, work = gather(x)``: a function of the project has begun the call."""
        called = self._project.function(self._project.resolve(self._scope, call.func))
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        if called is None or called.owner or not all(isinstance(part, ast.Name) for part in names):
            return None
        works = Works(self._project, self._operations, called)
        inner = _returned_work(called, works.is_asynchronous)
        if inner is None or (inner.place is None) == isinstance(target, ast.Tuple):
            return None
        targets = [part.id for part in names if isinstance(part, ast.Name)]
        if len(targets) != len(inner.returned):
            return None
        handle = targets[inner.place or 0]
        op, *inside = works.tensors_of(inner.call)
        fills, reads = (_outside(inner, called, call, targets, names) for names in inside)
        names_shown = tuple(shown(part) for part in call.args[:1])
        return Work(call, op, handle if handle != "_" else "", fills, reads - fills, "never-waited", names_shown)

    def tensors_of(self, call: ast.Call) -> tuple[str, set[str], set[str]]:
        """The operation, and the variables that it fills and reads."""
        op = self._operations.operation(self._scope, call) or ""
        fills, reads = _ARGUMENTS.get(op, (None, None))
        return op, _tensors(call, fills), _tensors(call, reads)

    def _is_bound_here(self, name: str) -> bool:
        """Whether a list is local to this function, so that no other code can wait for its entries."""
        node = self._scope.node
        return not isinstance(node, ast.Module) and any(
            isinstance(part, ast.Assign)
            and isinstance(part.value, (ast.List, ast.Call))
            and any(isinstance(target, ast.Name) and target.id == name for target in part.targets)
            for part in ast.walk(node)
        )

    def is_asynchronous(self, call: ast.Call) -> bool:
        ref = self._project.resolve(self._scope, call.func)
        name = ref.name if ref is not None and not ref.path else (dotted(call.func) or "") if not ref else ""
        path, _, last = name.rpartition(".")
        if path not in ("torch.distributed", "torch.distributed.distributed_c10d", "dist"):
            return False
        if last in ALWAYS_ASYNC:
            return True
        return _ARGUMENTS.get(last, (None, None))[0] is not None and any(
            argument.arg == "async_op" and isinstance(argument.value, ast.Constant) and argument.value.value is True
            for argument in call.keywords
        )


def appended_to(statement: ast.stmt) -> str:
    """``works`` of ``works.append(something)``."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    func = call.func if isinstance(call, ast.Call) and len(call.args) == 1 else None
    if not isinstance(func, ast.Attribute) or func.attr != "append":
        return ""
    return func.value.id if isinstance(func.value, ast.Name) else ""


def _tensors(call: ast.Call, place: tuple[int, str] | None) -> set[str]:
    """The variable passed as this argument; empty for other expressions."""
    if place is None:
        return set()
    given = call.args[place[0]] if len(call.args) > place[0] else None
    given = keyword(call, place[1]) or given
    while isinstance(given, (ast.Attribute, ast.Call)):  # x.data, x.detach(), x.view(-1): the same memory
        inner = given.func if isinstance(given, ast.Call) else given
        if not isinstance(inner, ast.Attribute) or inner.attr not in ("data", "detach", "view", "flatten"):
            break
        given = inner.value
    name = dotted(given) if given is not None else None
    return {name} if name is not None else set()


def inner_blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a statement."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return []
    blocks = [block for name in _BLOCKS if (block := getattr(statement, name, None))]
    blocks += [part.body for part in getattr(statement, "handlers", [])]
    return blocks + [case.body for case in getattr(statement, "cases", [])]


def header(statement: ast.stmt) -> list[ast.AST]:
    """The expressions of a statement that are evaluated before its blocks."""
    names = ("test", "iter", "subject", "target")
    parts: list[ast.AST] = [part for name in names if isinstance(part := getattr(statement, name, None), ast.AST)]
    return parts + [part.context_expr for part in getattr(statement, "items", [])]


def waits(node: ast.AST, *, only_header: bool = False) -> bool:
    """Whether anything in this node waits: then the state of all works is unknown."""
    parts = header(node) if only_header and isinstance(node, ast.stmt) else [node]
    return any(
        isinstance(inner, ast.Call) and last_name(inner.func) in _WAITING for part in parts for inner in ast.walk(part)
    )


@dataclass(frozen=True, slots=True)
class _Returned:
    """The call, the work's index in the returned tuple (None: only the work is returned), and the returned names."""

    call: ast.Call
    place: int | None
    returned: tuple[str | None, ...]


def _returned_work(scope: Scope, is_asynchronous: Callable[[ast.Call], bool]) -> _Returned | None:
    """What a function without branches returns, if it starts exactly one asynchronous call."""
    node = scope.node
    body = node.body if not isinstance(node, ast.Module) else []
    last = body[-1] if body else None
    if (
        not isinstance(last, ast.Return)
        or last.value is None
        or any(isinstance(statement, _COMPOUND) for statement in body)
    ):
        return None
    nodes = [node for statement in body for node in ast.walk(statement)]
    begun = [call for call in nodes if isinstance(call, ast.Call) and is_asynchronous(call)]
    if len(begun) != 1:
        return None
    names = {
        target.id
        for statement in body
        if isinstance(statement, ast.Assign) and statement.value is begun[0]
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    parts = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    places = [
        n for n, part in enumerate(parts) if part is begun[0] or (isinstance(part, ast.Name) and part.id in names)
    ]
    if len(places) != 1:
        return None
    alone = not isinstance(last.value, ast.Tuple)
    return _Returned(begun[0], None if alone else places[0], tuple(dotted(part) for part in parts))


_COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match, ast.AsyncFor, ast.AsyncWith)


def _outside(inner: _Returned, scope: Scope, call: ast.Call, targets: list[str], names: set[str]) -> set[str]:
    """The caller's names of the variables ``names`` of a function: targets of the call and arguments."""
    names_outside = {
        target
        for place, target in enumerate(targets)
        if place < len(inner.returned) and place != inner.place and inner.returned[place] in names
    }
    given = scope.passed(call)
    return names_outside | {name for parameter, value in given if parameter in names and (name := dotted(value))}
