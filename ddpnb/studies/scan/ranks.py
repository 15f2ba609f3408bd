"""Which values of the source are made from the rank, and how.

A name is followed to what is assigned or passed to it, wherever that is in the project.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ddpnb.recording.source import vocabulary as words
from ddpnb.recording.source.branches import FUNCTIONS
from ddpnb.recording.source.expressions import all_arguments, dotted, last_name, shown, variable_behind
from ddpnb.recording.source.modules import Scope
from ddpnb.recording.source.operations import Operations

# Calls and methods whose result is made from the rank if their arguments or objects do.
_THROUGH = frozenset({
    "int", "bool", "float", "str", "abs", "min", "max", "any", "all", "sum", "round", "tuple", "list", "set", "sorted",
    "range", "len", "enumerate", "zip", "tensor", "as_tensor", "isnan", "isfinite", "isinf", "full", "ceil", "floor",
    "item", "mean", "strip", "lower", "upper", "startswith", "endswith", "long", "cpu", "cuda", "to", "clone", "detach",
    "tolist", "total_seconds", "DataLoader",
})  # fmt: skip
# Collectives whose result is the same everywhere, in this argument afterwards.
_AGREEING = frozenset({
    "all_reduce", "all_gather", "all_gather_into_tensor", "_all_gather_base", "all_gather_object", "broadcast",
    "broadcast_object_list", "all_reduce_coalesced",
})  # fmt: skip
_EVERYWHERE = {
    ast.Eq: -1,
    ast.NotEq: -1,
    ast.Gt: -1,
    ast.GtE: 0,
    ast.Lt: 0,
}  # rank == -1, rank >= 0: alike on all ranks
_DEEPEST = 15  # names made of names


@dataclass(frozen=True, slots=True)
class Reads:
    """How a value is made from the rank. ``plain``: the words need no further explanation."""

    words: str
    plain: bool = False


@dataclass(frozen=True, slots=True)
class _Binding:
    """What a name is bound to: under which tests, and for which lines if only for some (a loop's variable)."""

    scope: Scope
    value: ast.expr | None
    line: int
    tests: tuple[ast.expr, ...] = ()
    lines: range | None = None
    passed: bool = False  # it is the argument of a call
    part: bool = False  # of a tuple

    @property
    def constant(self) -> bool:
        return isinstance(self.value, ast.Constant)


class Ranks:
    """The values of a project's names, as far as they are made from the rank."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._project = operations.project
        # By the key of a scope and a name; attributes by the name alone.
        self._bound: dict[tuple[tuple[str, str] | None, str], list[_Binding]] = {}
        self._returned: dict[tuple[str, str], list[_Binding]] = {}
        self._agreed: dict[tuple[tuple[str, str], str], list[int]] = {}
        self._known: dict[tuple[tuple[str, str] | None, str], Reads | None] = {}
        self._depth = 0
        for scope in operations.project.scopes():
            self._collect(scope, scope.node.body, ())

    # -- what names are bound to

    def _collect(self, scope: Scope, nodes: Iterable[ast.AST], tests: tuple[ast.expr, ...]) -> None:
        for node in nodes:
            if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
                continue
            if isinstance(node, ast.If):
                self._collect(scope, [node.test], tests)
                self._collect(scope, [*node.body, *node.orelse], (*tests, node.test))
                continue
            value = getattr(node, "value", None)
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(scope, target, _Binding(scope, node.value, node.lineno, tests))
            elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and value is not None:
                self._bind(scope, node.target, _Binding(scope, value, node.lineno, tests))
            elif isinstance(node, (ast.For, ast.AsyncFor)):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                self._bind(scope, node.target, _Binding(scope, None, node.lineno, lines=lines))
            elif isinstance(node, ast.Return) and value is not None:
                self._returned.setdefault(scope.key, []).append(_Binding(scope, value, node.lineno, tests))
            elif isinstance(node, ast.Call):
                self._pass(scope, node)
            self._collect(scope, ast.iter_child_nodes(node), tests)

    def _bind(self, scope: Scope, target: ast.expr, bound: _Binding) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = bound.value.elts if isinstance(bound.value, (ast.Tuple, ast.List)) else []
            alike = len(parts) == len(target.elts)
            for index, element in enumerate(target.elts):
                value = parts[index] if alike else bound.value
                whole = _Binding(scope, value, bound.line, bound.tests, bound.lines, part=not alike)
                self._bind(scope, element, whole)
        elif (name := dotted(target)) is not None:
            self._bound.setdefault((scope.key, name), []).append(bound)
            if isinstance(target, ast.Attribute):
                self._bound.setdefault((None, target.attr), []).append(bound)

    def _pass(self, scope: Scope, call: ast.Call) -> None:
        op = self._operations.operation(scope, call)
        if op in _AGREEING and (given := all_arguments(call)):
            name = dotted(variable_behind(given[0])) or ""
            self._agreed.setdefault((scope.key, name), []).append(call.end_lineno or call.lineno)
        for called, handed_on in self._operations.called(scope, call) if op is None else ():
            passed = called.passed(call) if not handed_on else [(p.arg, call) for p in called.parameters[:1]]
            for name, argument in passed:
                bound = _Binding(scope, argument, call.lineno, passed=True)
                self._bound.setdefault((called.key, name), []).append(bound)

    # -- what is made from the rank

    def of(self, scope: Scope, expr: ast.AST | None) -> Reads | None:
        """How an expression reads the rank; None if nothing shows that it does."""
        if isinstance(expr, (ast.Name, ast.Attribute)):
            return self._of_name(scope, expr)
        if isinstance(expr, ast.Subscript):
            return self._of_subscript(scope, expr)
        if isinstance(expr, ast.Call):
            return self._of_call(scope, expr)
        if isinstance(expr, ast.IfExp):
            chosen = any(isinstance(arm, ast.Constant) for arm in (expr.body, expr.orelse))
            arms = first(self.of(scope, arm) for arm in (expr.body, expr.orelse))
            return arms or (self.of(scope, expr.test) if chosen else None)
        if isinstance(expr, ast.Compare) and _alike(expr):
            return None
        if expr is None or isinstance(expr, (ast.Constant, ast.Lambda, ast.Dict, ast.JoinedStr)):
            return None
        if isinstance(expr, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            return first(self.of(scope, part.iter) for part in expr.generators)
        return first(self.of(scope, child) for child in ast.iter_child_nodes(expr))

    def _of_name(self, scope: Scope, expr: ast.Name | ast.Attribute) -> Reads | None:
        key, name = dotted(expr) or "", last_name(expr)
        bound = self._bound.get((scope.key, key), [])
        if any(b.lines is not None and expr.lineno in b.lines for b in bound):
            return None
        last = max((line for line in self._agreed.get((scope.key, key), ()) if line < expr.lineno), default=0)
        if last and not any(last < b.line <= expr.lineno for b in bound):
            return None
        parameters = [parameter.arg for parameter in scope.parameters]
        for place in ((scope.key, key), *self._elsewhere(scope, expr)):
            if place in self._bound or (place[0] == scope.key and name in parameters):
                return self._of_bound(place, name, parameter=place[0] == scope.key and name in parameters)
        return by_name(name)

    def _elsewhere(self, scope: Scope, expr: ast.Name | ast.Attribute) -> Iterator[tuple[tuple[str, str] | None, str]]:
        """Where a name may be bound outside of this function: around it, in another module, or on any object."""
        if isinstance(expr, ast.Attribute):
            base = self._project.resolve(scope, expr.value)
            if base is not None and base.path and not base.name:
                yield (base.path, ""), expr.attr
            yield None, expr.attr
            return
        for here in scope.outwards():
            if here is not scope:
                yield here.key, expr.id
            origin = here.names.get(expr.id)
            if isinstance(origin, tuple) and origin[2]:
                yield (self._project.locate(here.path, origin[0], origin[1]) or "", ""), origin[2]

    def _of_bound(
        self, place: tuple[tuple[str, str] | None, str], name: str, *, parameter: bool = False
    ) -> Reads | None:
        if place in self._known or self._depth > _DEEPEST:
            return self._known.get(place)
        self._known[place] = None  # while it is asked for: names that are made of each other
        self._depth += 1
        bound = self._bound.get(place, [])
        value = first(self._of_binding(place[1], one) for one in bound)
        constant = bool(bound) and all(one.constant for one in bound)
        unknown = not constant and (parameter or place[0] is None or any(one.part for one in bound))
        opaque = any(isinstance(one.value, ast.Call) and self._unknown(one.scope, one.value) for one in bound)
        self._known[place] = value or (by_name(name) if unknown or opaque else None)
        self._depth -= 1
        return self._known[place]

    def _of_binding(self, name: str, bound: _Binding) -> Reads | None:
        value, expr = self.of(bound.scope, bound.value), bound.value
        if bound.passed and isinstance(expr, ast.Call):
            called = self.outside(bound.scope, expr.func)
            if called.startswith("torch.multiprocessing.") and last_name(expr.func) in ("spawn", "start_processes"):
                said = f"`{name}` is the process index passed by {last_name(expr.func)}()"
                return Reads(said, plain=True)
        if value is None and bound.constant and not bound.passed:
            for test in reversed(bound.tests):
                if self.of(bound.scope, test) is not None:
                    return Reads(f"`{name}` is set under `{shown(test)}` (line {test.lineno})")
        if value is None or expr is None or bound.part:
            return value
        if bound.passed and dotted(expr) != name:
            return Reads(f"`{name}` is `{shown(expr)}` in the call at line {bound.line}", plain=True)
        if isinstance(expr, (ast.Name, ast.Attribute)):
            return value  # only an alias
        made = f"`{name}` is `{shown(expr)}` (line {bound.line})"
        return Reads(made if value.plain else f"{made}, and {value.words}")

    def _unknown(self, scope: Scope, call: ast.Call) -> bool:
        known = self._operations.operation(scope, call) is not None or last_name(call.func) in _THROUGH
        return not known and self._project.function(self._project.resolve(scope, call.func)) is None

    def _of_subscript(self, scope: Scope, expr: ast.Subscript) -> Reads | None:
        base, index = self.of(scope, expr.value), expr.slice
        if isinstance(index, ast.Constant) and isinstance(index.value, str):
            return base or _by_variable(index.value, expr) or by_name(index.value)
        keys = any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in ast.walk(index))
        chosen = keys or isinstance(index, ast.Slice) or isinstance(expr.value, (ast.List, ast.Tuple))
        return base or (self.of(scope, index) if chosen else None)

    def _of_call(self, scope: Scope, expr: ast.Call) -> Reads | None:
        name, last = self.outside(scope, expr.func), last_name(expr.func)
        key = expr.args[0].value if expr.args and isinstance(expr.args[0], ast.Constant) else None
        if self._operations.operation(scope, expr) is not None:
            return None
        if words.is_rank_call(name):
            return Reads(f"`{shown(expr)}` is rank-dependent", plain=True)
        if last in ("get", "getenv") and isinstance(key, str):
            return _by_variable(key, expr) or (by_name(key) if "environ" not in name and last == "get" else None)
        called = self._project.function(self._project.resolve(scope, expr.func))
        if called is not None:
            return self._of_function(expr, called)
        if words.tells_rank(last) and not all_arguments(expr):
            return Reads(f"`{shown(expr)}` is rank-dependent, judging by its name", plain=True)
        if last in _THROUGH or last.endswith("Dataset"):
            receiver = expr.func.value if isinstance(expr.func, ast.Attribute) else None
            return first(self.of(scope, part) for part in (receiver, *expr.args))
        return None

    def _of_function(self, expr: ast.Call, called: Scope) -> Reads | None:
        """What a function of the project returns."""
        place = called.key, "()"
        if place not in self._known and self._depth <= _DEEPEST:
            self._known[place] = None
            self._depth += 1
            self._known[place] = first(self._returns(one) for one in self._returned.get(called.key, ()))
            self._depth -= 1
        value = self._known.get(place)
        if value is None:
            return None
        line = getattr(called.node, "lineno", 0)
        said = f"`{last_name(expr.func)}()` ({called.path.rpartition('/')[2]}:{line})"
        nested = " depends on the rank" in value.words
        return Reads(f"{said} depends on the rank" + ("" if nested else f": {value.words}"))

    def _returns(self, bound: _Binding) -> Reads | None:
        chosen = isinstance(bound.value, ast.Constant) and bound.value.value is not None
        tests: Sequence[ast.expr] = bound.tests if chosen else ()
        return first(self.of(bound.scope, part) for part in (bound.value, *tests))

    def outside(self, scope: Scope, expr: ast.expr) -> str:
        """The dotted name of something outside of the project; the source text if it is unknown."""
        ref = self._project.resolve(scope, expr)
        return (dotted(expr) or "") if ref is None else "" if ref.path else ref.name


def first(values: Iterable[Reads | None]) -> Reads | None:
    """The first reason of several."""
    return next(filter(None, values), None)


def by_name(name: str) -> Reads | None:
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
