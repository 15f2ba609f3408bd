"""The conditions under which a rank reaches each call of one function: those around it, and ways out before it."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ddpnb.recording.calls import Site
from ddpnb.recording.source.expressions import bare, dotted, last_name, shown, whole_text
from ddpnb.studies.scan import vocabulary as words
from ddpnb.studies.scan.modules import Scope
from ddpnb.studies.scan.operations import group_of, operation
from ddpnb.studies.scan.ranks import Ranks
from ddpnb.studies.scan.sites import CollectiveSite, Condition

_MOST_WAYS = 30  # out of a function
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_EVALUATED: dict[type[ast.cmpop], Callable[[int, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.GtE: operator.ge, ast.Gt: operator.gt,
    ast.LtE: operator.le, ast.In: lambda rank, ranks: rank in ranks, ast.NotIn: lambda rank, ranks: rank not in ranks,
}  # fmt: skip


_Around = tuple[Condition, ...]  # outermost first
_Calls = list[tuple[str, str]]  # operations, each with its group
_Way = tuple[str, _Around]  # how a statement leaves, and the conditions of the arms around it


class Walk:
    """The collectives of one function, in the order of the source: ``sites``."""

    def __init__(self, scope: Scope, ranks: Ranks, uses_framework: bool) -> None:
        self.scope, self._names, self._path = scope, scope.module.names, scope.module.path
        self._ranks, self._uses_framework = ranks, uses_framework
        self._matched: set[ast.If] = set()  # no difference: the other ranks make the same calls
        self._managers: list[str] = []
        self._walk()
        if self._matched:
            self._walk()

    def _walk(self) -> None:
        self.sites: list[CollectiveSite] = []
        self._alone: list[tuple[ast.If, _Calls]] = []  # each `if` on the rank that has no match yet
        self._block(self.scope.node.body, tuple(self._decorators()))

    def _decorators(self) -> Iterator[Condition]:
        for decorator in getattr(self.scope.node, "decorator_list", []):
            if words.is_rank_decorator(name := last_name(decorator)):
                reason = f"`@{name}` runs the function on one rank, judging by its name"
                yield Condition(decorator.lineno, f"@{name}", "decorator", True, reason, self._path)

    def _block(self, statements: Sequence[ast.stmt], around: _Around) -> list[_Way]:
        """Walk through statements; returns the ways that leave them."""
        ways: list[_Way] = []
        returned: list[tuple[ast.If, _Calls, int]] = []
        for statement in statements:
            first = len(self.sites)
            passed = tuple(condition for way in ways if (condition := _around(way)) is not None)
            ways += self._statement(statement, (*around, *passed))
            if isinstance(statement, ast.If) and not statement.orelse and way_out(statement.body[-1]) == "return":
                returned.append((statement, self._calls(first), len(self.sites)))
        self._matched |= {node for node, calls, after in returned if calls and calls == self._calls(after)}
        return ways[:_MOST_WAYS]

    def _statement(self, node: ast.stmt, around: _Around) -> list[_Way]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return []
            case ast.If(test=test):
                return self._if(node, test, around)
            case ast.For() | ast.AsyncFor() | ast.While():
                return self._loop(node, around)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                for item in items:
                    self._expression(item.context_expr, around)
                self._managers += (names := [last_name(item.context_expr) for item in items])
                ways = self._block(body, around)
                del self._managers[len(self._managers) - len(names) :]
                return ways
            case ast.Match(subject=subject, cases=cases):
                self._expression(subject, around)
                arms = [(self._case(subject, one), one.body) for one in cases]
                return [way for arm, body in arms for way in self._arm(body, around, arm)]
            case ast.Try() | ast.TryStar():
                caught = [
                    (one.body, one.lineno, shown(one.type) if one.type else "", "except") for one in node.handlers
                ]
                last = [(node.finalbody, one.lineno, "finally", "finally") for one in node.finalbody[:1]]
                ways = self._block([*node.body, *node.orelse], around)
                for body, line, text, kind in (*caught, *last):
                    ways += self._block(body, (*around, Condition(line, text, kind, file=self._path)))
                return ways
            case _:
                self._expression(node, around)
                return [(kind, ())] if (kind := way_out(node)) else []

    def _arm(self, body: Sequence[ast.stmt], around: _Around, arm: Condition) -> list[_Way]:
        return [(kind, (arm, *arms)) for kind, arms in self._block(body, (*around, arm))]

    def _if(self, node: ast.If, test: ast.expr, around: _Around) -> list[_Way]:
        self._expression(test, around)
        if isinstance(test, ast.Compare) and dotted(test.left) == "__name__":
            return self._block(node.body, around) + self._block(node.orelse, around)
        first = len(self.sites)
        yes, no = (self._test(test, way, matched=node in self._matched) for way in (True, False))
        ways = self._arm(node.body, around, yes)
        middle = len(self.sites)
        ways += self._arm(node.orelse, around, no)
        if yes.depends_on_rank:
            self._match(node, self._calls(first, middle), self._calls(middle))
        return ways

    def _match(self, node: ast.If, made: _Calls, otherwise: _Calls) -> None:
        """Whether the ranks of the other branch make the same calls, there or in another ``if``."""
        if (made or node.orelse) and made == otherwise:
            self._matched.add(node)
        elif made and not node.orelse:
            for other, calls in self._alone:
                if calls == made and _opposite(other.test, node.test):
                    self._matched |= {node, other}
                    self._alone.remove((other, calls))
                    return
            self._alone.append((node, made))

    def _calls(self, first: int, last: int | None = None) -> _Calls:
        """What is called at these sites, to be compared with others."""
        return [(one.op, one.group) for one in self.sites[first:last]]

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, around: _Around) -> list[_Way]:
        if isinstance(node, ast.While):
            self._expression(node.test, around)
            endless = isinstance(node.test, ast.Constant)
            inner = around if endless else (*around, self._condition(node.test, shown(node.test), "while"))
        else:
            self._expression(node.iter, around)
            inner = (*around, self._each(node.target, node.iter))
        first = len(self.sites)
        ways = self._block(node.body, inner)
        for place, site in enumerate(self.sites[first:], first):  # in a later iteration
            left = [
                _around((kind, tuple(itertools.dropwhile(site.conditions.__contains__, arms))))
                for kind, arms in ways
                if kind != "continue"
            ]
            self.sites[place] = replace(
                site, conditions=_on_the_way([*site.conditions, *filter(None, left)], site.group)
            )
        return [way for way in (*ways, *self._block(node.orelse, around)) if way[0] == "return"]

    # -- expressions

    def _expression(self, node: ast.AST, around: _Around) -> None:
        """The calls of an expression or of a statement without blocks."""
        match node:
            case ast.Call():
                for child in ast.iter_child_nodes(node):
                    self._expression(child, around)
                self._call(node, around)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._expression(test, around)
                self._expression(body, (*around, self._test(test, True)))
                self._expression(orelse, (*around, self._test(test, False)))
            case ast.BoolOp(op=op, values=values):
                for value in values:
                    self._expression(value, around)
                    around = (*around, self._test(value, isinstance(op, ast.And), "and"))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                loops = [self._each(one.target, one.iter) for one in node.generators]
                tests = [self._test(test, True) for one in node.generators for test in one.ifs]
                for name, value in ast.iter_fields(node):
                    for child in value if isinstance(value, list) else [value]:
                        self._expression(child, around if name == "generators" else (*around, *loops, *tests))
            case _:
                for child in ast.iter_child_nodes(node):
                    self._expression(child, around)

    def _call(self, node: ast.Call, around: _Around) -> None:
        op = operation(self._names, node, self._uses_framework)
        if op is None and last_name(node.func) == "state_dict" and "state_dict_type" in self._managers:
            op = "state_dict"
        if op is not None:
            group = group_of(node)
            conditions = _on_the_way(around, group)
            place = Site(self._path, node.lineno, self.scope.name)
            self.sites.append(CollectiveSite(op, place, conditions, shown(node), node.end_lineno or node.lineno, group))

    # -- conditions

    def _test(self, test: ast.expr, way: bool, kind: str = "", *, matched: bool = False) -> Condition:
        text = shown(test) if way else negated(test)
        return self._condition(test, text, kind or ("if" if way else "else"), matched=matched)

    def _each(self, target: ast.expr, items: ast.expr) -> Condition:
        joined = "Join" in self._managers  # lets ranks have fewer iterations
        return self._condition(items, f"for {bare(target)} in {shown(items)}", "for", matched=joined)

    def _case(self, subject: ast.expr, case: ast.match_case) -> Condition:
        text = f"{shown(subject)} is {shown(case.pattern)}"
        return replace(self._condition(subject, text, "case"), line=case.pattern.lineno)

    def _condition(self, expr: ast.expr, text: str, kind: str, *, matched: bool = False) -> Condition:
        reads = self._ranks.of(self.scope, expr)
        if reads is None:
            return Condition(expr.lineno, text, kind, file=self._path)
        return Condition(expr.lineno, text, kind, True, reads.words, self._path, matched)


def _around(way: _Way) -> Condition | None:
    """The condition that a rank does not leave there, from the first one on that reads the rank; None: none does."""
    kind, arms = way
    reading = [one for one in arms if one.depends_on_rank]
    if not reading:
        return None
    first = arms.index(min(reading, key=lambda one: one.matched))
    text = " and ".join(dict.fromkeys(one.text for one in arms[first : first + 3]))
    matched = all(one.matched for one in reading)
    return replace(arms[first], line=arms[-1].line, kind=kind, text=text, matched=matched)


def _on_the_way(conditions: Iterable[Condition], group: str) -> _Around:
    """The conditions in line order. Of a group that is not the default one, presumably only the members call it."""
    if group:
        conditions = [replace(one, matched=one.depends_on_rank) for one in conditions]
    return tuple(sorted(dict.fromkeys(conditions), key=lambda condition: condition.line))


def negated(test: ast.expr) -> str:
    """``rank != 0`` for ``rank == 0``."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return shown(test.operand)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return shown(ast.Compare(test.left, [_OPPOSITE[type(test.ops[0])]()], test.comparators))
    plain = isinstance(test, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    return f"not {shown(test)}" if plain else f"not ({shown(test)})"


def _opposite(test: ast.expr, other: ast.expr) -> bool:
    """Whether two tests of a rank are true on different ranks: ``rank not in (-1, 0)`` and ``rank == 0``."""
    (text, ranks), (other_text, other_ranks) = _ranks_of(test), _ranks_of(other)
    return text == other_text and all(map(operator.ne, ranks, other_ranks))


def _ranks_of(test: ast.expr) -> tuple[str, list[bool]]:
    """What a test asks of, and whether it holds for the first four ranks."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        text, ranks = _ranks_of(test.operand)
        return text, [not holds for holds in ranks]
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _EVALUATED:
        try:
            value = ast.literal_eval(test.comparators[0])
            ranks = [bool(_EVALUATED[type(test.ops[0])](rank, value)) for rank in range(4)]
            return whole_text(test.left), ranks
        except (ValueError, TypeError, MemoryError, RecursionError):
            pass
    return whole_text(test), [False, True, True, True]


def way_out(node: ast.stmt) -> str:
    """How a statement leaves what it is in. A failure is none: nobody waits for it for long."""
    if isinstance(node, (ast.Return, ast.Continue, ast.Break)):
        return type(node).__name__.lower()
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and dotted(call.func) in ("sys.exit", "exit", "quit", "os._exit"):
        status = call.args[0] if call.args else ast.Constant(0)
        return "return" if isinstance(status, ast.Constant) and status.value in (0, None) else ""
    return ""
