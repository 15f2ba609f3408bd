"""Whether all ranks issue the same calls, whichever branch they take.

The statements are evaluated once for each of a few ranks: tests that depend on the rank are worked
out, unknown ones are tried both ways. ``if rank == 0: broadcast(...) else:
broadcast(...)`` is the same for all, and so is a barrier before and behind what rank 0 does first.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ddpnb.lint import vocabulary as words
from ddpnb.lint.differences import Values
from ddpnb.source.branches import FUNCTIONS
from ddpnb.source.expressions import last_name, whole_text

Token = tuple[object, ...]
Key = tuple[str, int]
_MOST_UNKNOWN = 6
_MOST_RANKS = 16
_DEEPEST = 8
_MOST_TRIES = 6000  # ranks times guesses, for one function: beyond, branches count as different


class _Opaque(Exception):
    """The value cannot be evaluated."""


class _Ask(Exception):
    """A test must be tried both ways."""

    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self.key = key


@dataclass(slots=True)
class _Try:
    """One rank, in a world of this size, with guesses for unknown values."""

    rank: int
    world: int
    guesses: dict[Key, bool] = field(default_factory=dict[Key, bool])


def ranks_to_try(*nodes: ast.AST) -> list[int]:
    """Ranks that the constants of these tests distinguish."""
    ranks = {0, 1, 2, 3}
    for node in nodes:
        for part in ast.walk(node):
            value = part.value if isinstance(part, ast.Constant) else None
            if isinstance(value, str) and value.isdecimal() and len(value) < 6:
                value = int(value)  # os.environ["RANK"] == "3"
            if type(value) is int and 0 < value < 100_000:
                ranks |= {value - 1, value, value + 1}
    return sorted(ranks)[:_MOST_RANKS]


class Matching:
    """Evaluates tests and calls within one function."""

    def __init__(self, values: Values, calls: Callable[[ast.Call], Sequence[Token]]) -> None:
        self._values = values
        self._calls = calls  # the collectives that a call stands for, in order
        self._tries = 0
        self._made: dict[int, list[Token]] = {}
        self._mattering: dict[int, bool] = {}

    # -- tests

    def outcome(self, test: ast.expr) -> bool | None:
        """The result of the test on every rank of a distributed run; None if unknown or different."""
        results: set[bool] = set()
        ranks = ranks_to_try(test)
        for rank in ranks:
            try:
                results.add(self._truth(test, _Try(rank, max(ranks) + 1)))
            except (_Ask, _Opaque, RecursionError):
                return None
        return results.pop() if len(results) == 1 else None

    def holds_on(self, tests: Sequence[tuple[ast.expr, bool]]) -> set[int] | None:
        """The ranks on which all these tests have these results; None if unknown."""
        ranks = ranks_to_try(*(test for test, _ in tests))
        try:
            return {
                rank
                for rank in ranks
                if all(self._truth(test, _Try(rank, max(ranks) + 1)) is way for test, way in tests)
            }
        except (_Ask, _Opaque, RecursionError):
            return None

    def _truth(self, test: ast.expr, how: _Try) -> bool:
        if isinstance(test, ast.BoolOp):
            both = isinstance(test.op, ast.And)
            for part in test.values:
                if self._truth(part, how) is not both:
                    return not both
            return both
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return not self._truth(test.operand, how)
        if isinstance(test, ast.NamedExpr):
            return self._truth(test.value, how)
        try:
            return bool(self._work_out(test, how, 0))
        except _Opaque:
            return self._guess(test, how)

    def _guess(self, test: ast.expr, how: _Try) -> bool:
        positive = True
        text = whole_text(test)
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            for negative, word in ((ast.NotEq, ast.Eq), (ast.NotIn, ast.In), (ast.IsNot, ast.Is)):
                if isinstance(test.ops[0], negative):
                    text = whole_text(ast.Compare(test.left, [word()], test.comparators))
                    positive = False
        key = (text, how.rank if self._values.of(test).cause else -1)
        if key not in how.guesses:
            raise _Ask(key)
        return how.guesses[key] is positive

    def _work_out(self, expr: ast.expr, how: _Try, depth: int) -> object:
        if depth > _DEEPEST:
            raise _Opaque
        if isinstance(expr, ast.Constant):
            return expr.value
        if isinstance(expr, ast.UnaryOp):
            value = self._work_out(expr.operand, how, depth + 1)
            if isinstance(expr.op, ast.Not):
                return not value
            if isinstance(expr.op, ast.USub) and isinstance(value, int):
                return -value
            raise _Opaque
        if isinstance(expr, ast.BoolOp):
            value: object = None
            for part in expr.values:
                value = self._work_out(part, how, depth + 1)
                if bool(value) is not isinstance(expr.op, ast.And):
                    return value
            return value
        if isinstance(expr, ast.BinOp):
            left, right = (self._work_out(part, how, depth + 1) for part in (expr.left, expr.right))
            return _arithmetic(expr.op, left, right)
        if isinstance(expr, ast.Compare):
            left = self._work_out(expr.left, how, depth + 1)
            for op, part in zip(expr.ops, expr.comparators, strict=True):
                right = self._work_out(part, how, depth + 1)
                if not _compare(op, left, right):
                    return False
                left = right
            return True
        if isinstance(expr, ast.IfExp):
            arm = expr.body if self._work_out(expr.test, how, depth + 1) else expr.orelse
            return self._work_out(arm, how, depth + 1)
        if isinstance(expr, (ast.List, ast.Tuple, ast.Set)):
            return [self._work_out(part, how, depth + 1) for part in expr.elts]
        return self._leaf(expr, how, depth)

    def _leaf(self, expr: ast.expr, how: _Try, depth: int) -> object:
        name = last_name(expr)
        if isinstance(expr, ast.Subscript) and isinstance(expr.slice, ast.Constant):
            name = str(expr.slice.value)
        if isinstance(expr, ast.Call) and name in ("get", "getenv") and expr.args:
            name = str(expr.args[0].value) if isinstance(expr.args[0], ast.Constant) else ""
        if words.is_world_size(name):
            return how.world
        if isinstance(expr, ast.Call) and name in ("int", "bool") and len(expr.args) == 1:
            value = self._work_out(expr.args[0], how, depth + 1)
            if name == "bool":
                return bool(value)
            if isinstance(value, str) and value.isdecimal():
                return int(value[:20])
            if isinstance(value, int):
                return int(value)
            raise _Opaque
        known = self._values.of(expr)
        if known.cause == "rank":
            made_of = known.expr
            if made_of is not None and made_of is not expr and not isinstance(expr, ast.Call):
                return self._work_out(made_of, how, depth + 1)
            if words.is_first(name):
                return how.rank == 0
            if words.is_last(name):
                return how.rank == how.world - 1
            if words.is_rank_variable(name) and isinstance(expr, (ast.Subscript, ast.Call)):
                return str(how.rank)
            if words.is_rank(name):
                return how.rank
        elif not known.cause and words.is_distributed_flag(name):
            return True
        elif known.plain and isinstance(known.expr, (ast.Constant, ast.UnaryOp)) and known.expr is not expr:
            return self._work_out(known.expr, how, depth + 1)
        raise _Opaque

    # -- calls

    def same_for_all(self, statements: Sequence[ast.stmt], closing: str = "", *, caught: bool = False) -> bool:
        """Whether every rank makes the same calls in these statements and leaves them in the same way.

        ``closing`` is how the end of the statements is left: ``return`` at the end of a function.
        ``caught``: a rank that raises continues; otherwise it ends, and with it the run.
        """
        tests = [part for statement in statements for part in ast.walk(statement) if isinstance(part, ast.Constant)]
        return self._same(statements, closing, caught, ranks_to_try(*tests), {})

    def _same(
        self, statements: Sequence[ast.stmt], closing: str, caught: bool, ranks: list[int], guesses: dict[Key, bool]
    ) -> bool:
        shapes: set[tuple[tuple[Token, ...], str]] = set()
        try:
            for rank in ranks:
                self._tries += 1
                if self._tries > _MOST_TRIES:
                    return False
                tokens, end = self._shape(statements, _Try(rank, max(ranks) + 1, guesses))
                if end != "raise" or caught:
                    shapes.add((tuple(tokens), end or closing))
        except _Ask as ask:
            return len(guesses) < _MOST_UNKNOWN and all(
                self._same(statements, closing, caught, ranks, {**guesses, ask.key: guess}) for guess in (True, False)
            )
        except (_Opaque, RecursionError):
            return False
        return len(shapes) <= 1

    def _shape(self, statements: Sequence[ast.stmt], how: _Try) -> tuple[list[Token], str]:
        tokens: list[Token] = []
        for statement in statements:
            more, end = self._statement(statement, how)
            tokens += more
            if end:
                return tokens, end
        return tokens, ""

    def _statement(self, node: ast.stmt, how: _Try) -> tuple[list[Token], str]:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            return [], ""
        if isinstance(node, ast.If):
            tokens = self._expressions(node.test)
            if not self._matters(node):
                return tokens, ""
            more, end = self._shape(node.body if self._truth(node.test, how) else node.orelse, how)
            return tokens + more, end
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            header = self._expressions(node.test if isinstance(node, ast.While) else node.iter)
            inner, end = self._shape(node.body, how)
            if end == "raise":
                return header + inner, end
            more, after = self._shape(node.orelse, how)
            loop: list[Token] = [("loop", tuple(inner), end)] if inner or end == "return" else []
            return header + loop + more, after
        if isinstance(node, (ast.With, ast.AsyncWith)):
            tokens = [token for item in node.items for token in self._expressions(item.context_expr)]
            more, end = self._shape(node.body, how)
            return tokens + more, end
        if isinstance(node, (ast.Try, ast.TryStar)):
            return self._try(node, how)
        if isinstance(node, ast.Match):
            cases = [self._shape(case.body, how) for case in node.cases]
            if not any(tokens or end for tokens, end in cases):
                return self._expressions(node.subject), ""
            if self._values.of(node.subject).cause:
                raise _Opaque
            arms = tuple((tuple(tokens), end) for tokens, end in cases)
            return [*self._expressions(node.subject), ("match", node.lineno, arms)], ""
        tokens = self._expressions(node)
        return tokens, leaves(node)

    def _try(self, node: ast.Try | ast.TryStar, how: _Try) -> tuple[list[Token], str]:
        tokens, end = self._shape(node.body, how)
        if end == "raise" and node.handlers:
            more, end = self._shape(node.handlers[0].body, how)
            tokens += more
        elif not end:
            more, end = self._shape(node.orelse, how)
            tokens += more
        more, last = self._shape(node.finalbody, how)
        return tokens + more, last or end

    def _matters(self, node: ast.If) -> bool:
        """Whether a branch issues a call or leaves: other tests need no evaluation."""
        if id(node) not in self._mattering:
            self._mattering[id(node)] = self._in_an_arm(node)
        return self._mattering[id(node)]

    def _in_an_arm(self, node: ast.If) -> bool:
        for arm in (node.body, node.orelse):
            for statement in arm:
                for part in ast.walk(statement):
                    if isinstance(part, ast.stmt) and leaves(part):
                        return True
                    if isinstance(part, ast.Call) and self._expressions(part):
                        return True
        return False

    def _expressions(self, node: ast.AST) -> list[Token]:
        """The collectives within an expression, inner ones first."""
        if id(node) not in self._made:
            self._made[id(node)] = self._collectives(node)
        return list(self._made[id(node)])

    def _collectives(self, node: ast.AST) -> list[Token]:
        tokens: list[Token] = []
        if isinstance(node, (ast.Lambda, *FUNCTIONS, ast.ClassDef)):
            return tokens
        for child in ast.iter_child_nodes(node):
            tokens += self._collectives(child)
        if isinstance(node, ast.Call):
            # Sends, receives and the end of a group need not match on all ranks.
            tokens += [token for token in self._calls(node) if token[0] not in words.P2P and token[0] not in words.ENDS]
        return tokens


def leaves(node: ast.stmt) -> str:
    """How a statement leaves its block: return, continue, break, raise; empty if it does not."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = whole_text(node.value.func) if isinstance(node.value.func, (ast.Name, ast.Attribute)) else ""
        if called in ("sys.exit", "exit", "quit", "os._exit"):
            code = node.value.args[0] if node.value.args else None
            well = code is None or (isinstance(code, ast.Constant) and code.value in (0, None))
            return "return" if well else "raise"
    words = {ast.Return: "return", ast.Continue: "continue", ast.Break: "break", ast.Raise: "raise"}
    return words.get(type(node), "")


_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
_ORDER: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


def _arithmetic(op: ast.operator, left: object, right: object) -> int:
    calculate = _ARITHMETIC.get(type(op))
    if calculate is None or not (isinstance(left, int) and isinstance(right, int)):
        raise _Opaque
    if max(abs(left), abs(right)) > 1 << 40 or (right == 0 and isinstance(op, (ast.FloorDiv, ast.Mod))):
        raise _Opaque
    return calculate(left, right)


def _compare(op: ast.cmpop, left: object, right: object) -> bool:
    if isinstance(left, str) and isinstance(right, int):
        raise _Opaque
    if isinstance(op, (ast.Eq, ast.Is)):
        return left == right
    if isinstance(op, (ast.NotEq, ast.IsNot)):
        return left != right
    if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, list):
        return (left in right) is isinstance(op, ast.In)
    compare = _ORDER.get(type(op))
    if compare is None or not (isinstance(left, (int, float)) and isinstance(right, (int, float))):
        raise _Opaque
    return compare(left, right)
