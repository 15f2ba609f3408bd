"""Which expressions of the source read the rank, by names and by what these are assigned or passed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddpnb.recording.source.expressions import all_arguments, dotted, last_name, shown, variable_behind
from ddpnb.studies.scan import vocabulary as words
from ddpnb.studies.scan.modules import Scope
from ddpnb.studies.scan.operations import Operations

# Calls whose result reads the rank if their arguments do.
_THROUGH = frozenset({
    "int", "bool", "float", "str", "min", "max", "any", "all", "range", "len", "enumerate", "list", "sorted", "tensor",
    "DataLoader", "item", "strip", "lower", "startswith", "isnan", "isfinite",
})  # fmt: skip
# Collectives after which this argument is the same on all ranks.
_AGREEING = frozenset({"all_reduce", "all_gather", "all_gather_object", "broadcast", "broadcast_object_list"})
_EVERYWHERE = {
    ast.Eq: -1,
    ast.NotEq: -1,
    ast.Gt: -1,
    ast.GtE: 0,
    ast.Lt: 0,
}  # rank == -1, rank >= 0: on all ranks alike
_SPAWNING = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
_DEEPEST = 15  # names made of names
_UNKNOWN = ast.Call(ast.Name("?"), [], [])  # of a tuple that a call returns

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
        self._agreed: dict[Place, int] = {}  # after which line
        self._spawned: set[Place] = set()  # parameters that a launcher fills with the rank
        self._known: dict[Place, Reads | None] = {}
        self._depth = 0
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
            case ast.Call():
                self._call(scope, node)
            case _:
                pass

    def _bind(self, scope: Scope, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            alike = len(parts) == len(target.elts)
            for index, element in enumerate(target.elts):
                self._bind(scope, element, parts[index] if alike else value and _UNKNOWN)
        elif (place := _place(scope, target)) is not None:
            self._bound.setdefault(place, []).append((scope, value))

    def _call(self, scope: Scope, call: ast.Call) -> None:
        given = all_arguments(call)
        if (op := self._operations.operation(scope, call)) is not None:
            place = _place(scope, variable_behind(given[0])) if given and op in _AGREEING else None
            if place is not None:
                self._agreed.setdefault(place, call.end_lineno or call.lineno)
            return
        spawns = self.outside(scope, call.func) in _SPAWNING
        for function, handed_on in self._operations.called(scope, call):
            if spawns and handed_on and function.parameters:
                self._spawned.add((*function.key, function.parameters[0].arg))
            for name, value in () if handed_on else function.passed(call):
                self._bound.setdefault((*function.key, name), []).append((scope, value))

    # -- what reads the rank

    def of(self, scope: Scope, expr: ast.AST | None) -> Reads | None:
        """How an expression reads the rank; None if nothing shows that it does."""
        match expr:
            case None | ast.Constant() | ast.Lambda() | ast.Dict() | ast.JoinedStr():
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
        name = last_name(expr)
        for place in self._places(scope, expr):
            if self._agreed.get(place, expr.lineno) < expr.lineno:
                return None
            if place in self._spawned:
                return Reads(f"`{name}` is the process index passed by spawn()", plain=True)
            if place in self._bound:
                return self._of_bound(place, name)
        return _by_name(name)

    def _places(self, scope: Scope, expr: ast.Name | ast.Attribute) -> Iterator[Place]:
        """Where a name may be bound: in its function or class, around it, or in the module that it is imported from."""
        if isinstance(expr, ast.Attribute):
            if (place := _place(scope, expr)) is not None:
                yield place
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
        if any(value is None for _, value in self._bound[place]):
            return None
        if place not in self._known and self._depth < _DEEPEST:
            self._known[place] = None  # names that are made of each other
            self._depth += 1
            values = (self._of_value(place[2], *one) for one in self._bound[place])
            self._known[place] = next(filter(None, values), None)
            self._depth -= 1
        opaque = any(self._opaque(*one) or dotted(one[1] or _UNKNOWN) == name for one in self._bound[place])
        return self._known.get(place) or (_by_name(name) if opaque else None)

    def _of_value(self, name: str, scope: Scope, value: ast.expr | None) -> Reads | None:
        reads = self.of(scope, value)
        if reads is None or value is None or isinstance(value, (ast.Name, ast.Attribute)):
            return reads  # an alias needs no words of its own
        made = f"`{name}` is `{shown(value)}` (line {value.lineno})"
        return Reads(made if reads.plain else f"{made}, and {reads.words}")

    def _opaque(self, scope: Scope, value: ast.expr | None) -> bool:
        """Whether it is a call of which nothing is known."""
        if not isinstance(value, ast.Call) or value is _UNKNOWN:
            return value is _UNKNOWN
        known = self._operations.operation(scope, value) is not None or last_name(value.func) in _THROUGH
        return not known and self._project.function(self._project.resolve(scope, value.func)) is None

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
        place = (*called.key, "()")
        if place not in self._known and self._depth < _DEEPEST:
            self._known[place] = None
            self._depth += 1
            self._known[place] = self._first(called, self._returned.get(called.key, ()))
            self._depth -= 1
        if (reads := self._known.get(place)) is None:
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
