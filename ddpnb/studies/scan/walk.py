"""The conditions under which a rank reaches each call of one function.

Statements are visited in order; ways out of a function, loop or ``try`` are conditions of what follows.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ddpnb.recording.source import vocabulary as words
from ddpnb.recording.source.branches import FUNCTIONS, LOOPS
from ddpnb.recording.source.expressions import bare, dotted, last_name, shown, whole_text
from ddpnb.recording.source.modules import Scope
from ddpnb.recording.source.operations import Operations, group_of
from ddpnb.studies.scan.ranks import Ranks, Reads

_MOST_EXITS = 30  # of a function or loop
WAYS_OUT = ("return", "continue", "break", "raise")
_ARMS = ("if", "else", "case", "and")
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_EVALUATED: dict[type[ast.cmpop], Callable[[int, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.GtE: operator.ge, ast.Gt: operator.gt,
    ast.LtE: operator.le, ast.In: lambda rank, ranks: rank in ranks, ast.NotIn: lambda rank, ranks: rank not in ranks,
}  # fmt: skip
_END = ("sys.exit", "exit", "quit", "os._exit", "os.abort")


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on the way to a call.

    ``kind`` ``return``, ``continue``, ``break`` and ``raise`` are ways around the call: when ``text``
    holds, the rank leaves before it. ``matched``: the ranks that decide otherwise make the same calls,
    or need not make this one.
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
            word = "in" if self.text.startswith(("except", "for ", "while ")) else "if"
            return f"{self.kind} {word} {self.text}"
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


@dataclass(slots=True)
class _Frame:
    """A function, loop or ``try`` that can be left early, with the conditions that left it so far."""

    kind: str
    base: int = 0  # number of conditions around it
    left: list[Condition] = field(default_factory=list[Condition])


class Walk:
    """One pass over a function (or the statements of a module)."""

    def __init__(self, operations: Operations, ranks: Ranks, scope: Scope) -> None:
        self.scope = scope
        self.events: list[Event] = []
        self._operations = operations
        self._ranks = ranks
        self._under: list[Condition] = []
        self._frames = [_Frame("function")]
        self._blocks: list[tuple[list[ast.stmt], int]] = []
        self._joined = 0  # > 0: under Join, which lets ranks have fewer batches
        self._sharded_state = 0
        self._tests: dict[int, tuple[str, list[bool]]] = {}
        self._pairs = set[int]()  # each ``if`` with another one on the other ranks

    def run(self) -> None:
        """Walk through it."""
        node = self.scope.node
        for decorator in node.decorator_list if not isinstance(node, ast.Module) else ():
            name = last_name(decorator)
            if words.is_rank_decorator(name):
                reads = Reads(f"`@{name}` runs the function on one rank, judging by its name")
                self._under.append(self._condition(decorator.lineno, f"@{name}", "decorator", reads))
        self._block(node.body)

    def _reads(self, expr: ast.expr) -> Reads | None:
        return self._ranks.of(self.scope, expr)

    # -- conditions

    def _condition(
        self, line: int, text: str, kind: str, reads: Reads | None = None, *, matched: bool = False
    ) -> Condition:
        reason = reads.words if reads is not None else ""
        return Condition(line, text, kind, reads is not None, reason, self.scope.path, matched)

    @contextmanager
    def _when(self, *conditions: Condition) -> Iterator[None]:
        self._under += conditions
        yield
        del self._under[len(self._under) - len(conditions) :]

    def _leave(self, kind: str) -> None:
        """Where ranks may differ in whether they leave, that is a condition of what follows."""
        loops = [frame for frame in self._frames if frame.kind == "loop"]
        if kind == "raise":
            frames = self._frames[-1:] if self._frames[-1].kind == "try" else []
        elif kind == "return" or not loops:
            frames = [self._frames[0], *loops]
        else:
            frames = loops[-1:]
        inner = self._under[frames[0].base :] if frames else []
        reading = [condition for condition in inner if condition.depends_on_rank]
        if not reading:
            return
        first = min(reading, key=lambda condition: condition.matched)
        arms = [condition for condition in inner[inner.index(first) :] if condition.kind in _ARMS]
        texts = (
            [c.text for c in arms[:3]] if first.kind in _ARMS else [first.text if first.kind == "for" else str(first)]
        )
        line = arms[-1].line if first.kind in _ARMS else first.line
        matched = all(condition.matched for condition in reading)
        way = replace(first, line=line, kind=kind, text=" and ".join(dict.fromkeys(texts)), matched=matched)
        for frame in frames:
            if way not in frame.left and len(frame.left) < _MOST_EXITS:
                frame.left.append(way)

    # -- statements

    def _block(self, statements: list[ast.stmt]) -> None:
        for index, statement in enumerate(statements):
            self._blocks.append((statements, index))
            self._statement(statement)
            self._blocks.pop()

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, LOOPS):
            self._loop(node)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            self._with(node)
        elif isinstance(node, (ast.Try, ast.TryStar)):
            self._try(node)
        elif isinstance(node, ast.Match):
            self._calls(node.subject)
            reads = self._reads(node.subject)
            cases = [(case.pattern.lineno, f"{shown(node.subject)} is {shown(case.pattern)}") for case in node.cases]
            conditions = [self._condition(line, text, "case", reads) for line, text in cases]
            self._arms(conditions, [case.body for case in node.cases])
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            for decorator in node.decorator_list:
                self._calls(decorator)
        else:
            self._simple(node)

    def _simple(self, node: ast.stmt) -> None:
        for child in ast.iter_child_nodes(node):
            self._calls(child)
        if kind := way_out(node):
            self._leave(kind)

    def _if(self, node: ast.If) -> None:
        self._calls(node.test)
        if isinstance(node.test, ast.Compare) and dotted(node.test.left) == "__name__":
            self._block(node.body)
            return
        reads = self._reads(node.test)
        matched = reads is not None and self._matched(node)
        yes = self._condition(node.test.lineno, shown(node.test), "if", reads, matched=matched)
        no = self._condition(node.test.lineno, negated(node.test), "else", reads, matched=matched)
        self._arms([yes, no], [node.body, node.orelse])

    def _arms(self, conditions: Sequence[Condition], bodies: Sequence[list[ast.stmt]]) -> None:
        """The branches of a statement: what leaves one is no condition of the others."""
        exits = [len(frame.left) for frame in self._frames]
        added: list[list[Condition]] = [[] for _ in exits]
        for condition, body in zip(conditions, bodies, strict=True):
            with self._when(condition):
                self._block(body)
            for frame, count, new in zip(self._frames, exits, added, strict=True):
                new += frame.left[count:]
                del frame.left[count:]
        for frame, new in zip(self._frames, added, strict=True):
            frame.left += new

    def _matched(self, node: ast.If) -> bool:
        """Whether the ranks of both branches make the same calls, here or in a later or earlier ``if not`` of this one."""
        statements, index = self._blocks[-1]
        if id(node) in self._pairs:
            return True
        body = self._operations.sequence(self.scope, node.body)
        if not body and not node.orelse:
            return False
        rest = node.orelse
        if not rest and way_out(node.body[-1]) == "return":
            rest = statements[index + 1 :]
        if body == self._operations.sequence(self.scope, rest):
            return True
        near = (
            other
            for level, at in (*self._blocks[-2:], (self._counterpart(), 0))
            for part in (*level[at + 1 : at + 20], *reversed(level[max(0, at - 20) : at]))
            for other in (part, *(part.body if isinstance(part, (ast.If, ast.With)) else ()))
            if isinstance(other, ast.If) and other is not node and id(other) not in self._pairs
        )
        for other in near if not node.orelse else ():
            if self._opposite(node.test, other.test) and body == self._operations.sequence(self.scope, other.body):
                self._pairs |= {id(node), id(other)}
                return True
        return False

    def _opposite(self, test: ast.expr, other: ast.expr) -> bool:
        """Whether two tests of a rank are true on different ranks: ``rank not in (-1, 0)`` and ``rank == 0``."""
        for expr in (test, other):
            if id(expr) not in self._tests:
                self._tests[id(expr)] = _ranks_of(expr)
        (text, ranks), (other_text, other_ranks) = self._tests[id(test)], self._tests[id(other)]
        return text == other_text and all(map(operator.ne, ranks, other_ranks))

    def _counterpart(self) -> list[ast.stmt]:
        """``__exit__`` of the class whose ``__enter__`` this is, or the reverse, behind a placeholder."""
        name = self.scope.name.rpartition(".")[2]
        other = {"__enter__": "__exit__", "__exit__": "__enter__"}.get(name, "")
        functions = self._operations.project.modules[self.scope.path].functions
        method = functions.get(f"{self.scope.owner}.{other}")
        return [ast.Pass(), *method.node.body] if method is not None else []

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        head = node.test if isinstance(node, ast.While) else node.iter
        self._calls(head)
        kind, text = "while", shown(head)
        if not isinstance(node, ast.While):
            kind, text = "for", f"for {bare(node.target)} in {text}"
        condition = self._condition(node.lineno, text, kind, self._reads(head), matched=self._joined > 0)
        frame, first = _Frame("loop", len(self._under)), len(self.events)
        self._frames.append(frame)
        with self._when(*(() if kind == "while" and isinstance(head, ast.Constant) else (condition,))):
            self._block(node.body)
        self._frames.pop()
        again = [left for left in frame.left if left.kind != "continue"]  # ranks that left are in no further iteration
        for index, event in enumerate(self.events[first:], first):
            conditions = _in_order([*event.conditions, *again])
            if event.op is not None:
                conditions = for_members(event.node, conditions)
            self.events[index] = replace(event, conditions=conditions)
        self._block(node.orelse)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        names = [last_name(item.context_expr) for item in node.items]
        for item in node.items:
            self._calls(item.context_expr)
        joined, sharded = "Join" in names, "state_dict_type" in names
        self._joined += joined
        self._sharded_state += sharded
        self._guarded(node.body, swallows="suppress" in names)
        self._joined -= joined
        self._sharded_state -= sharded

    def _guarded(self, body: list[ast.stmt], *, swallows: bool) -> None:
        """Statements after a ``raise`` in which a rank may continue elsewhere."""
        self._frames += [_Frame("try", len(self._under))] if swallows else []
        self._block(body)
        if swallows:
            self._frames.pop()

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        self._guarded(node.body, swallows=any(not isinstance(h.body[-1], ast.Raise) for h in node.handlers))
        self._block(node.orelse)
        for handler in node.handlers:
            text = shown(handler.type) if handler.type is not None else ""
            with self._when(self._condition(handler.lineno, text, "except")):
                self._block(handler.body)
        if node.finalbody:
            with self._when(self._condition(node.finalbody[0].lineno, "finally", "finally")):
                self._block(node.finalbody)

    # -- calls

    def _calls(self, expr: ast.AST) -> None:
        """Record the calls of an expression, each with its conditions."""
        if not self._operations.makes_calls(expr):
            return
        if isinstance(expr, ast.BoolOp):
            conditions: list[Condition] = []
            for before, part in zip([None, *expr.values], expr.values, strict=False):
                if before is not None:
                    conditions.append(self._arm(before, isinstance(expr.op, ast.And), "and"))
                with self._when(*conditions):
                    self._calls(part)
        elif isinstance(expr, ast.IfExp):
            self._calls(expr.test)
            for part, way in ((expr.body, True), (expr.orelse, False)):
                with self._when(self._arm(expr.test, way, "if" if way else "else")):
                    self._calls(part)
        elif isinstance(expr, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            conditions = []
            for part in expr.generators:
                self._calls(part.iter)
                text = f"for {bare(part.target)} in {shown(part.iter)}"
                conditions.append(self._condition(part.iter.lineno, text, "for", self._reads(part.iter)))
                conditions += [self._arm(test, True, "if") for test in part.ifs]
            with self._when(*conditions):
                for part in (expr.key, expr.value) if isinstance(expr, ast.DictComp) else (expr.elt,):
                    self._calls(part)
        else:
            for child in ast.iter_child_nodes(expr):
                self._calls(child)
            if isinstance(expr, ast.Call):
                self._call(expr)

    def _arm(self, test: ast.expr, way: bool, kind: str) -> Condition:
        return self._condition(test.lineno, shown(test) if way else negated(test), kind, self._reads(test))

    def _call(self, expr: ast.Call) -> None:
        op = self._operations.operation(self.scope, expr)
        if op is None and self._sharded_state and last_name(expr.func) == "state_dict":
            op = "state_dict"
        conditions = _in_order([*self._under, *(left for frame in self._frames for left in frame.left)])
        if op is not None:
            self.events.append(Event(expr, op, None, for_members(expr, conditions)))
            return
        for called, handed_on in self._operations.called(self.scope, expr):
            self.events.append(Event(expr, None, called, conditions, handed_on))


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
    """How a statement leaves what it is in; a process that ends with a failure leaves nobody waiting, as an exception."""
    if isinstance(node, (ast.Return, ast.Continue, ast.Break, ast.Raise)):
        return type(node).__name__.lower()
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and (dotted(call.func) or "") in _END:
        status = call.args[0] if call.args else ast.Constant(0)
        healthy = isinstance(status, ast.Constant) and status.value in (0, None)
        return "return" if healthy and last_name(call.func) != "abort" else "raise"
    return ""
