"""The works of one function: asynchronous calls and their tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ddpnb.recording.source import names
from ddpnb.recording.source.branches import FUNCTIONS
from ddpnb.recording.source.expressions import dotted, keyword, last_name, shown

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
    names: tuple[str, ...] = ()

    @property
    def tensors(self) -> set[str]:
        return self.fills | self.reads


class Names(names.Names):
    """What the names of a file stand for outside of it, and its functions."""

    def __init__(self, parsed: ast.Module) -> None:
        super().__init__(parsed)
        self.bound.setdefault("dist", (0, "torch.distributed", ""))  # the usual name, where the file does not bind it
        self.functions = {node.name: node for node in ast.walk(parsed) if isinstance(node, FUNCTIONS)}

    def imported(self, expr: ast.expr) -> str:
        """The dotted name of something that is imported, not made by a call; empty for everything else."""
        name = self.outside(expr)
        return name if "()" not in name else ""


class Works:
    """Finds the works of a function in its syntax tree."""

    def __init__(self, names: Names, function: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._names, self._function = names, function

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
            if (
                isinstance(statement.value, ast.Call)
                and not self._is_asynchronous(statement.value)
                and last_name(statement.value.func) in self._names.functions
            ):
                return self._from_function(statement.value, target)
            if not isinstance(target, ast.Name):
                return None  # kept in an attribute, or unpacked
            handle, value = target.id if target.id != "_" else "", statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            handle, value = statement.target.id, statement.value
        elif isinstance(statement, ast.Expr):
            value = statement.value
            kept_in = appended_to(statement)
            if isinstance(value, ast.Call) and kept_in and self._is_bound_here(kept_in):
                handle, value = kept_in, value.args[0]
        else:
            return None
        if not isinstance(value, ast.Call) or not self._is_asynchronous(value):
            return None
        op, fills, reads = self._tensors_of(value)
        kind: Kind = "never-waited" if handle else "thrown-away"
        return Work(value, op, handle, fills, reads - fills, kind, tuple(map(shown, value.args[:1])))

    def _from_function(self, call: ast.Call, target: ast.expr) -> Work | None:
        """``parts, work = gather(x)``: a function of this file, without branches, that returns what it has begun."""
        function = self._names.functions[last_name(call.func)]
        outside = target.elts if isinstance(target, ast.Tuple) else [target]
        last = function.body[-1]
        returned = last.value if isinstance(last, ast.Return) else None
        inside = returned.elts if isinstance(returned, ast.Tuple) else [returned]
        plain = isinstance(call.func, ast.Name) and not any(inner_blocks(statement) for statement in function.body)
        if not plain or len(inside) != len(outside) or not all(isinstance(one, ast.Name) for one in outside):
            return None
        begun = {
            name: node
            for statement in function.body
            for name, node in _values(statement)
            if self._is_asynchronous(node)
        }
        places = [n for n, one in enumerate(inside) if one in begun.values() or (one and dotted(one) in begun)]
        if len(begun) != 1 or len(places) != 1:
            return None
        op, *tensors = self._tensors_of(next(iter(begun.values())))
        meant = {name: dotted(value) for name, value in names.passed(function, call).items()}
        meant |= {dotted(one): dotted(other) for one, other in zip(inside, outside, strict=True) if one is not None}
        fills, reads = ({name for one in part if (name := meant.get(one))} for part in tensors)
        handle = dotted(outside[places[0]]) or ""
        handle = handle if handle != "_" else ""
        return Work(call, op, handle, fills, reads - fills, "never-waited", tuple(map(shown, call.args[:1])))

    def _tensors_of(self, call: ast.Call) -> tuple[str, set[str], set[str]]:
        """The operation, and the variables that it fills and reads."""
        op = self._names.imported(call.func).rpartition(".")[2]
        fills, reads = _ARGUMENTS.get(op, (None, None))
        return op, _tensors(call, fills), _tensors(call, reads)

    def _is_bound_here(self, name: str) -> bool:
        """Whether a list is local to this function, so that no other code can wait for its entries."""
        return not isinstance(self._function, ast.Module) and any(
            isinstance(part, ast.Assign)
            and isinstance(part.value, (ast.List, ast.Call))
            and any(isinstance(target, ast.Name) and target.id == name for target in part.targets)
            for part in ast.walk(self._function)
        )

    def _is_asynchronous(self, call: ast.Call) -> bool:
        path, _, last = self._names.imported(call.func).rpartition(".")
        if path not in ("torch.distributed", "torch.distributed.distributed_c10d"):
            return False
        if last in ALWAYS_ASYNC:
            return True
        return _ARGUMENTS.get(last, (None, None))[0] is not None and any(
            argument.arg == "async_op" and isinstance(argument.value, ast.Constant) and argument.value.value is True
            for argument in call.keywords
        )


def _values(statement: ast.stmt) -> Iterator[tuple[str, ast.Call]]:
    """The calls of a statement, each with the name that it is assigned to, or a name of its own."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            kept = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is node else None
            yield (dotted(kept) or "" if kept is not None else f"line {id(node)}"), node


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
