"""The conditions under which a rank reaches each call of one function: those around it, and ways out before it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ddpnb.recording.source.branches import LOOPS
from ddpnb.recording.source.expressions import bare, dotted, last_name, shown, whole_text
from ddpnb.studies.scan import vocabulary as words
from ddpnb.studies.scan.modules import Scope
from ddpnb.studies.scan.operations import Operations, group_of
from ddpnb.studies.scan.ranks import Ranks

WAYS_OUT = ("return", "continue", "break")
_MOST_WAYS = 30  # out of a function
_ARMS = ("if", "else", "case", "and")
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_EVALUATED: dict[type[ast.cmpop], Callable[[int, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.GtE: operator.ge, ast.Gt: operator.gt,
    ast.LtE: operator.le, ast.In: lambda rank, ranks: rank in ranks, ast.NotIn: lambda rank, ranks: rank not in ranks,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on the way to a call.

    ``kind`` ``return``, ``continue`` and ``break`` are ways around the call: when ``text`` holds, the rank leaves before
    it. ``matched``: the ranks that decide otherwise make the same calls, or need not make this one.
    """

    line: int
    text: str
    kind: str
    depends_on_rank: bool = False
    reason: str = ""  # in plain words
    file: str = ""
    matched: bool = False

    @property
    def marked(self) -> bool:
        """Whether only some ranks may pass."""
        return self.depends_on_rank and not self.matched

    def __str__(self) -> str:
        """The condition as text."""
        if self.kind in WAYS_OUT:
            return f"{self.kind} if {self.text}"
        if self.kind in _ARMS:
            return f"only if {self.text}"
        return f"{self.kind} {self.text}".strip() if self.kind in ("while", "except") else self.text


@dataclass(frozen=True, slots=True)
class Event:
    """A call of a collective, or of a function of the project."""

    node: ast.Call
    op: str | None
    called: Scope | None
    conditions: tuple[Condition, ...]
    handed_on: bool = False  # the function is passed on here, not called


_Around = tuple[ast.AST, str, ast.AST]  # what is around a node: the parent, the field, and the child in it


class Walk:
    """The calls of one function that matter, in the order of the source."""

    def __init__(self, operations: Operations, ranks: Ranks, scope: Scope) -> None:
        self._operations, self._ranks, self.scope = operations, ranks, scope
        self._nodes = list(scope.nodes())
        self._parents: dict[ast.AST, tuple[ast.AST, str]] = {}
        for node in (scope.node, *self._nodes):
            for field, value in ast.iter_fields(node):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST) and not isinstance(child, (ast.expr_context, ast.operator)):
                        self._parents[child] = node, field
        self._matched = self._pairs()
        self._ways = list(self._ways_out())[:_MOST_WAYS]
        self.events = sorted(self._events(), key=lambda event: (event.node.lineno, event.node.end_lineno or 0))

    def _events(self) -> Iterator[Event]:
        decorated = self._decorators()
        for node in self._nodes:
            if isinstance(node, ast.Call):
                op = self._operations.operation(self.scope, node)
                if op is None and last_name(node.func) == "state_dict" and self._is_within(node, "state_dict_type"):
                    op = "state_dict"
                called = self._operations.called(self.scope, node) if op is None else []
                if op is None and not called:
                    continue
                conditions = _in_order([*decorated, *self._conditions(node)])
                if op is not None:
                    yield Event(node, op, None, for_members(node, conditions))
                yield from (Event(node, None, function, conditions, handed_on) for function, handed_on in called)

    def _decorators(self) -> Iterator[Condition]:
        for decorator in getattr(self.scope.node, "decorator_list", []):
            if words.is_rank_decorator(name := last_name(decorator)):
                reason = f"`@{name}` runs the function on one rank, judging by its name"
                yield Condition(decorator.lineno, f"@{name}", "decorator", True, reason, self.scope.path)

    # -- conditions around a node

    def _around(self, node: ast.AST) -> list[_Around]:
        """What is around a node in its function, outermost first."""
        around: list[_Around] = []
        while node is not self.scope.node:
            parent, field = self._parents[node]
            around.append((parent, field, node))
            node = parent
        return around[::-1]

    def _is_within(self, node: ast.AST, manager: str) -> bool:
        """Whether it is in a ``with`` of this context manager."""
        return any(
            isinstance(parent, (ast.With, ast.AsyncWith))
            and field == "body"
            and any(last_name(item.context_expr) == manager for item in parent.items)
            for parent, field, _ in self._around(node)
        )

    def _conditions(self, node: ast.Call) -> Iterator[Condition]:
        around = self._around(node)
        for level in around:
            yield from self._of(*level)
        for kind, left, out in self._ways:
            outer = _shared(out, around)
            if _passes(kind, (left, out), (node, around), outer) and (way := self._way(kind, out[outer:])) is not None:
                yield way

    def _of(self, parent: ast.AST, field: str, child: ast.AST) -> list[Condition]:
        match parent:
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                return []
            case ast.If(test=test) | ast.IfExp(test=test) if field != "test":
                return [self._test(test, field == "body", parent)]
            case ast.For() | ast.AsyncFor() if field == "body":
                return [self._loop(parent.target, parent.iter, parent)]
            case ast.While(test=test) if field == "body" and not isinstance(test, ast.Constant):
                return [self._condition(test, shown(test), "while")]
            case ast.BoolOp(op=op, values=values):
                before = values[: values.index(child)]  # type: ignore[arg-type]
                return [self._test(one, isinstance(op, ast.And), kind="and") for one in before]
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp() if field != "generators":
                loops = [self._loop(one.target, one.iter, parent) for one in parent.generators]
                return loops + [self._test(test, True) for one in parent.generators for test in one.ifs]
            case ast.match_case(pattern=pattern) if field == "body":
                subject = getattr(self._parents[parent][0], "subject", pattern)
                return [self._condition(subject, f"{shown(subject)} is {shown(pattern)}", "case", line=pattern.lineno)]
            case ast.ExceptHandler():
                text = shown(parent.type) if parent.type is not None else ""
                return [Condition(parent.lineno, text, "except", file=self.scope.path)]
            case ast.Try(finalbody=[first, *_]) if field == "finalbody":
                return [Condition(first.lineno, "finally", "finally", file=self.scope.path)]
            case _:
                return []

    def _test(self, test: ast.expr, way: bool, statement: ast.AST | None = None, kind: str = "") -> Condition:
        text = shown(test) if way else negated(test)
        return self._condition(test, text, kind or ("if" if way else "else"), matched=statement in self._matched)

    def _loop(self, target: ast.expr, items: ast.expr, parent: ast.AST) -> Condition:
        joined = self._is_within(parent, "Join")  # lets ranks have fewer iterations
        return self._condition(items, f"for {bare(target)} in {shown(items)}", "for", matched=joined)

    def _condition(self, expr: ast.AST, text: str, kind: str, line: int = 0, *, matched: bool = False) -> Condition:
        reads = self._ranks.of(self.scope, expr)
        reason = reads.words if reads is not None else ""
        at = line or getattr(expr, "lineno", 0)
        return Condition(at, text, kind, reads is not None, reason, self.scope.path, matched and reads is not None)

    # -- ways out

    def _ways_out(self) -> Iterator[tuple[str, ast.stmt, list[_Around]]]:
        """Statements that leave the function, a loop or its iteration under a condition that reads the rank."""
        for node in self._nodes:
            if isinstance(node, ast.stmt) and (kind := way_out(node)):
                around = self._around(node)
                if any(one.depends_on_rank for level in around for one in self._of(*level)):
                    yield kind, node, around

    def _way(self, kind: str, inner: Sequence[_Around]) -> Condition | None:
        """The condition that a rank does not leave there, from the first one on that reads the rank."""
        arms = [one for level in inner for one in self._of(*level) if one.kind in _ARMS]
        reading = [one for one in arms if one.depends_on_rank]
        if not reading:
            return None
        first = arms.index(min(reading, key=lambda one: one.matched))
        text = " and ".join(dict.fromkeys(one.text for one in arms[first : first + 3]))
        matched = all(one.matched for one in reading)
        return replace(arms[first], line=arms[-1].line, kind=kind, text=text, matched=matched)

    # -- branches that make the same calls

    def _pairs(self) -> set[ast.AST]:
        """Each ``if`` that is no difference: the ranks of its other branch make the same calls, there or in another ``if``."""
        matched = set[ast.AST]()
        open_: list[tuple[ast.If, tuple[str, ...]]] = []
        for node in (*self._nodes, *self._counterpart()):
            if isinstance(node, ast.If) and self._ranks.of(self.scope, node.test) is not None:
                body = self._operations.sequence(self.scope, node.body)
                if (body or node.orelse) and body == self._operations.sequence(self.scope, self._otherwise(node)):
                    matched.add(node)
                elif body and not node.orelse:
                    other = next(
                        (one for one, calls in open_ if calls == body and _opposite(one.test, node.test)), None
                    )
                    matched |= {node, other} if other is not None else set()
                    open_ = [pair for pair in open_ if pair[0] is not other]
                    open_ += [(node, body)] if other is None else []
        return matched

    def _counterpart(self) -> Iterator[ast.AST]:
        """``__exit__`` of the class of which this is ``__enter__``."""
        functions = self._operations.project.modules[self.scope.path].functions
        other = {"__enter__": "__exit__", "__exit__": "__enter__"}.get(self.scope.name.rpartition(".")[2])
        if other is not None and (method := functions.get(f"{self.scope.owner}.{other}")) is not None:
            yield from method.nodes()

    def _otherwise(self, node: ast.If) -> list[ast.stmt]:
        """What the other ranks run: the ``else``, or what follows a branch that returns."""
        if node.orelse or way_out(node.body[-1]) != "return" or node not in self._parents:
            return node.orelse
        parent, field = self._parents[node]
        block = getattr(parent, field)
        return block[block.index(node) + 1 :]


def _shared(out: Sequence[_Around], around: Sequence[_Around]) -> int:
    """How many levels are around both."""
    for level, (one, other) in enumerate(zip(out, around, strict=False)):
        if one[:2] != other[:2] or (isinstance(one[0], ast.Match) and one[2] is not other[2]):
            return level
    return min(len(out), len(around))


def _passes(
    kind: str, way: tuple[ast.stmt, Sequence[_Around]], call: tuple[ast.Call, Sequence[_Around]], outer: int
) -> bool:
    """Whether a rank that leaves there would have come to this call; both with what is around them, ``outer`` in common."""
    (left, out), (node, around) = way, call
    loops = [parent for parent, field, _ in out if isinstance(parent, LOOPS) and field == "body"]
    shared = [parent for parent, field, _ in out[:outer] if isinstance(parent, LOOPS) and field == "body"]
    if kind in ("break", "continue") and loops[-1:] != shared[-1:]:
        return False
    if shared and kind in ("break", "return"):
        return True  # in a later iteration
    arms = [levels[outer] for levels in (out, around) if outer < len(levels)]
    exclusive = len(arms) > 1 and arms[0][0] is arms[1][0] and isinstance(arms[0][0], (ast.If, ast.Match))
    return left.lineno < node.lineno and not exclusive


def _in_order(conditions: list[Condition]) -> tuple[Condition, ...]:
    return tuple(sorted(dict.fromkeys(conditions), key=lambda condition: condition.line))


def for_members(call: ast.Call, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """A collective of another group than the default one: presumably only its members call it."""
    if not group_of(call):
        return conditions
    return tuple(replace(condition, matched=condition.depends_on_rank) for condition in conditions)


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
