"""Which expressions of the source read the rank, by names and by what these are assigned or passed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddpnb.recording.source.expressions import all_arguments, dotted, last_name, shown
from ddpnb.studies.scan import vocabulary as words
from ddpnb.studies.scan.modules import Scope
from ddpnb.studies.scan.operations import Operations

# Calls whose result reads the rank if their arguments do.
_THROUGH = frozenset({
    "int", "bool", "float", "str", "min", "max", "range", "len", "enumerate", "list", "sorted", "DataLoader",
})  # fmt: skip
_EVERYWHERE = {
    ast.Eq: -1,
    ast.NotEq: -1,
    ast.Gt: -1,
    ast.GtE: 0,
    ast.Lt: 0,
}  # rank == -1, rank >= 0: on all ranks alike
_SPAWNING = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
_DEEPEST = 15  # names made of names

Place = tuple[str, str, str]  # a file, a function or class in it, and a name


@dataclass(frozen=True, slots=True)
class Reads:
    """How an expression reads the rank. ``plain``: the words need no further explanation."""

    words: str
    plain: bool = False


class Ranks:
    """The names of a project that are made from the rank."""

    def __init__(self, operations: Operations) -> None:
        self._operations, self._project = operations, operations.project
        self._bound: dict[Place, list[tuple[Scope, ast.expr | None]]] = {}  # None: any rank, as in a loop over all
        self._returned: dict[tuple[str, str], list[ast.expr]] = {}
        self._spawned: set[Place] = set()  # parameters that a launcher fills with the rank
        self._known: dict[Place, Reads | None] = {}
        self._open: list[Place] = []  # that are looked at
        for scope in self._project.scopes():
            for node in scope.nodes():
                self._collect(scope, node)

    def _collect(self, scope: Scope, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(scope, target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                self._bind(scope, target, value)
            case ast.For(target=target) | ast.AsyncFor(target=target):
                self._bind(scope, target, None)
            case ast.Return(value=ast.expr() as value):
                self._returned.setdefault(scope.key, []).append(value)
            case ast.Call(func=func) if self.outside(scope, func) in _SPAWNING:
                spawned = [function for function, _ in self._operations.called(scope, node) if function.parameters]
                self._spawned |= {(*function.key, function.parameters[0].arg) for function in spawned}
            case _:
                pass

    def _bind(self, scope: Scope, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            if value is None or len(parts) == len(target.elts):
                for index, element in enumerate(target.elts):
                    self._bind(scope, element, value and parts[index])
        elif (place := _place(scope, target)) is not None:
            self._bound.setdefault(place, []).append((scope, value))

    # -- what reads the rank

    def of(self, scope: Scope, expr: ast.AST | None) -> Reads | None:
        """How an expression reads the rank; None if nothing shows that it does."""
        match expr:
            case None | ast.Constant() | ast.Lambda() | ast.Dict() | ast.List() | ast.Tuple() | ast.JoinedStr():
                return None
            case ast.Name() | ast.Attribute():
                return self._of_name(scope, expr)
            case ast.Call():
                return self._of_call(scope, expr)
            case ast.Subscript(slice=ast.Constant(value=str(key))):
                return self.of(scope, expr.value) or _by_variable(key, expr) or _by_name(key)
            case ast.Subscript(slice=ast.Slice()):
                return self.of(scope, expr.value) or self.of(scope, expr.slice)
            case ast.Subscript(value=value) | ast.Starred(value=value):
                return self.of(scope, value)
            case ast.Compare() if _alike(expr):
                return None
            case ast.IfExp(body=body, orelse=orelse):
                chosen = isinstance(body, ast.Constant) or isinstance(orelse, ast.Constant)
                return self._first(scope, (body, orelse, *([expr.test] if chosen else ())))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._first(scope, [part.iter for part in expr.generators])
            case _:
                return self._first(scope, ast.iter_child_nodes(expr))

    def _first(self, scope: Scope, parts: Iterable[ast.AST]) -> Reads | None:
        return next(filter(None, (self.of(scope, part) for part in parts)), None)

    def _of_name(self, scope: Scope, expr: ast.Name | ast.Attribute) -> Reads | None:
        for place in self._places(scope, expr):
            if place in self._spawned:
                return Reads(f"`{last_name(expr)}` is the process index passed by spawn()", plain=True)
            if place in self._bound:
                return self._of_bound(place, last_name(expr))
        return _by_name(last_name(expr))

    def _places(self, scope: Scope, expr: ast.Name | ast.Attribute) -> Iterator[Place]:
        """Where a name may be bound: in its function or class, around it, or in the module that it is imported from."""
        if isinstance(expr, ast.Attribute):
            yield from filter(None, [_place(scope, expr)])
            base = self._project.resolve(scope, expr.value)
            if base is not None and base.path and not base.name:
                yield base.path, "", expr.attr
            return
        for here in scope.outwards():
            yield *here.key, expr.id
            origin = here.names.get(expr.id)
            if isinstance(origin, tuple) and origin[2]:
                yield self._project.locate(here.path, origin[0], origin[1]) or "", "", origin[2]

    def _of_bound(self, place: Place, name: str) -> Reads | None:
        values = [(scope, value) for scope, value in self._bound[place] if value is not None]
        if len(values) < len(self._bound[place]):
            return None
        reads = self._once(place, (self._of_value(name, *one) for one in values))
        opaque = any(isinstance(value, ast.Call) or dotted(value) == name for _, value in values)
        return reads or (_by_name(name) if opaque else None)

    def _once(self, place: Place, reads: Iterable[Reads | None]) -> Reads | None:
        """The first of them, looked for once. Names may be made of each other."""
        if place not in self._known and len(self._open) < _DEEPEST:
            self._known[place] = None
            self._open.append(place)
            self._known[place] = next(filter(None, reads), None)
            self._open.pop()
        return self._known.get(place)

    def _of_value(self, name: str, scope: Scope, value: ast.expr) -> Reads | None:
        reads = self.of(scope, value)
        if reads is None or isinstance(value, (ast.Name, ast.Attribute)):
            return reads  # an alias needs no words of its own
        made = f"`{name}` is `{shown(value)}` (line {value.lineno})"
        return Reads(made if reads.plain else f"{made}, and {reads.words}")

    def _of_call(self, scope: Scope, expr: ast.Call) -> Reads | None:
        name, last = self.outside(scope, expr.func), last_name(expr.func)
        if self._operations.operation(scope, expr) is not None:
            return None
        if words.is_rank_call(name):
            return Reads(f"`{shown(expr)}` is rank-dependent", plain=True)
        if last in ("get", "getenv") and expr.args and isinstance(key := getattr(expr.args[0], "value", None), str):
            return _by_variable(key, expr)
        if (called := self._project.function(self._project.resolve(scope, expr.func))) is not None:
            return self._of_function(expr, called)
        if words.tells_rank(last) and not all_arguments(expr):
            return Reads(f"`{shown(expr)}` is rank-dependent, judging by its name", plain=True)
        if last not in _THROUGH and not last.endswith("Dataset"):
            return None
        return self._first(scope, [*([expr.func.value] if isinstance(expr.func, ast.Attribute) else ()), *expr.args])

    def _of_function(self, expr: ast.Call, called: Scope) -> Reads | None:
        """What a function of the project returns."""
        returned = (self.of(called, value) for value in self._returned.get(called.key, ()))
        if (reads := self._once((*called.key, "()"), returned)) is None:
            return None
        where = f"({called.path.rpartition('/')[2]}:{getattr(called.node, 'lineno', 0)})"
        more = "" if " depends on the rank" in reads.words else f": {reads.words}"
        return Reads(f"`{last_name(expr.func)}()` {where} depends on the rank{more}")

    def outside(self, scope: Scope, expr: ast.expr) -> str:
        """The dotted name of something outside of the project; the source text if it is unknown."""
        ref = self._project.resolve(scope, expr)
        return (dotted(expr) or "") if ref is None else "" if ref.path else ref.name


def _place(scope: Scope, target: ast.expr) -> Place | None:
    """Where an assignment to a name or to an attribute of ``self`` is kept."""
    if isinstance(target, ast.Name):
        return *scope.key, target.id
    method = scope.method() if isinstance(target, ast.Attribute) and dotted(target.value) == "self" else None
    return (scope.path, f"class {method.owner}", last_name(target)) if method is not None else None


def _by_name(name: str) -> Reads | None:
    """What the name of a variable suggests."""
    if not words.tells_rank(name):
        return None
    what = "the rank" if words.is_rank(name) else "true on one rank"
    return Reads(f"`{name}` is {what}, judging by its name", plain=True)


def _by_variable(name: str, expr: ast.expr) -> Reads | None:
    return Reads(f"`{shown(expr)}` is set per process", plain=True) if words.is_rank_variable(name) else None


def _alike(expr: ast.Compare) -> bool:
    """Whether a comparison of a rank has the same result on all: ``rank >= 0``, ``local_rank != -1``, ``rank is None``."""
    if isinstance(expr.ops[0], (ast.Is, ast.IsNot)):
        return words.is_rank(last_name(expr.left))
    bound = _EVERYWHERE.get(type(expr.ops[0]))
    try:
        return len(expr.ops) == 1 and bound is not None and ast.literal_eval(expr.comparators[0]) == bound
    except (ValueError, TypeError, MemoryError, RecursionError):
        return False
