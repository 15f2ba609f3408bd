"""Which expressions of a file read the rank, by names and by what these are assigned."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from ddpnb.recording.source.expressions import all_arguments, dotted, last_name, shown
from ddpnb.studies.scan import vocabulary as words
from ddpnb.studies.scan.modules import Module, Scope

# Calls whose result reads the rank if their arguments do.
_THROUGH = frozenset({
    "int", "bool", "float", "str", "min", "max", "range", "len", "enumerate", "list", "sorted", "DataLoader",
})  # fmt: skip
# rank == -1, rank >= 0: on all ranks alike
_EVERYWHERE = {ast.Eq: -1, ast.NotEq: -1, ast.Gt: -1, ast.GtE: 0, ast.Lt: 0}
_DEEPEST = 15  # names made of names


@dataclass(frozen=True, slots=True)
class Reads:
    """How an expression reads the rank. ``plain``: the words need no further explanation."""

    words: str
    plain: bool = False


class Ranks:
    """The names of a file that are made from the rank."""

    def __init__(self, module: Module) -> None:
        self._names, self._outside = module.names, module.node
        self._known: dict[tuple[ast.AST, str], Reads | None] = {}  # by function and name
        self._open = 0  # names that are looked at
        # function -> name -> what it is assigned; None: any rank, as in a loop over all. ``self.x`` is the file's.
        self._bound: dict[ast.AST, dict[str, list[ast.expr | None]]] = {}
        for scope in module.scopes():
            for node in scope.nodes():
                match node:
                    case ast.Assign(targets=targets, value=value):
                        for target in targets:
                            self._bind(scope.node, target, value)
                    case (
                        ast.AnnAssign(target=target, value=ast.expr() as value)
                        | ast.NamedExpr(target=target, value=value)
                    ):
                        self._bind(scope.node, target, value)
                    case ast.For(target=target) | ast.AsyncFor(target=target):
                        self._bind(scope.node, target, None)
                    case _:
                        pass

    def _bind(self, function: ast.AST, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            if value is None or len(parts) == len(target.elts):
                for index, element in enumerate(target.elts):
                    self._bind(function, element, value and parts[index])
        elif name := dotted(target):
            where = self._outside if "." in name else function
            self._bound.setdefault(where, {}).setdefault(name, []).append(value)

    def of(self, scope: Scope, expr: ast.AST | None) -> Reads | None:
        """How an expression reads the rank; None if nothing shows that it does."""

        def first(parts: Iterable[ast.AST]) -> Reads | None:
            return next(filter(None, (self.of(scope, part) for part in parts)), None)

        match expr:
            case None | ast.Constant() | ast.Lambda() | ast.Dict() | ast.List() | ast.Tuple() | ast.JoinedStr():
                return None
            case ast.Name() | ast.Attribute():
                return self._of_name(scope, expr)
            case ast.Call():
                passed = [*([expr.func.value] if isinstance(expr.func, ast.Attribute) else ()), *expr.args]
                last = last_name(expr.func)
                through = last in _THROUGH or last.endswith("Dataset")
                return self._of_call(expr) or (first(passed) if through else None)
            case ast.Subscript(slice=ast.Constant(value=str(key))):
                return first([expr.value]) or _by_variable(key, expr) or _by_name(key)
            case ast.Subscript(slice=ast.Slice()):
                return first([expr.value, expr.slice])
            case ast.Subscript(value=value) | ast.Starred(value=value):
                return first([value])
            case ast.Compare() if _alike(expr):
                return None
            case ast.IfExp(body=body, orelse=orelse):
                chosen = isinstance(body, ast.Constant) or isinstance(orelse, ast.Constant)
                return first([body, orelse, *([expr.test] if chosen else ())])
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return first([part.iter for part in expr.generators])
            case _:
                return first(ast.iter_child_nodes(expr))

    def _of_name(self, scope: Scope, expr: ast.Name | ast.Attribute) -> Reads | None:
        name = dotted(expr) or ""
        here, outside = (self._bound.get(one, {}).get(name) for one in (scope.node, self._outside))
        values = here or ([] if name in _parameters(scope) else outside) or []
        if None in values:
            return None
        reads = self._once(scope, name, values)
        opaque = any(isinstance(value, ast.Call) or (value and dotted(value) == last_name(expr)) for value in values)
        return reads or (_by_name(last_name(expr)) if opaque or not values else None)

    def _once(self, scope: Scope, name: str, values: Iterable[ast.expr | None]) -> Reads | None:
        """How the first of a name's values reads the rank, looked for once. Names may be made of each other."""
        place = scope.node, name
        if place not in self._known and self._open < _DEEPEST:
            self._known[place] = None
            self._open += 1
            reads = (self._of_value(name, scope, value) for value in values if value)
            self._known[place] = next(filter(None, reads), None)
            self._open -= 1
        return self._known.get(place)

    def _of_value(self, name: str, scope: Scope, value: ast.expr) -> Reads | None:
        reads = self.of(scope, value) if name != dotted(value) else None
        if reads is None or isinstance(value, (ast.Name, ast.Attribute)):
            return reads  # an alias needs no words of its own
        made = f"`{name.rpartition('.')[2]}` is `{shown(value)}` (line {value.lineno})"
        return Reads(made if reads.plain else f"{made}, and {reads.words}")

    def _of_call(self, expr: ast.Call) -> Reads | None:
        last = last_name(expr.func)
        if words.is_rank_call(self._names.outside(expr.func) or dotted(expr.func) or ""):
            return Reads(f"`{shown(expr)}` is rank-dependent", plain=True)
        if last in ("get", "getenv") and expr.args and isinstance(key := getattr(expr.args[0], "value", None), str):
            return _by_variable(key, expr)
        if words.tells_rank(last) and not all_arguments(expr):
            return Reads(f"`{shown(expr)}` is rank-dependent, judging by its name", plain=True)
        return None


def _parameters(scope: Scope) -> set[str]:
    if isinstance(scope.node, ast.Module):
        return set()
    return {one.arg for one in ast.walk(scope.node.args) if isinstance(one, ast.arg)}


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
