"""The conditions under which a rank reaches a statement."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ddpnb.lint.known import CAUSES
from ddpnb.source.expressions import last_name, shown, whole_text

Kind = Literal[
    "if", "else", "case", "for", "while", "and", "return", "continue", "break", "raise", "try", "except", "finally",
    "decorator",
]  # fmt: skip
Doubt = Literal["strong", "weak", "none"]


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on the way to a statement.

    ``kind`` ``return``, ``continue``, ``break`` and ``raise`` are ways around the statement: when
    ``text`` holds, the rank leaves before it. ``matched``: the ranks that decide otherwise make the
    same calls, or need not make this one.
    """

    line: int
    text: str
    kind: Kind
    depends_on_rank: bool = False
    cause: str = ""  # why it may differ: one of differences.CAUSES
    reason: str = ""  # in plain words
    file: str = ""
    matched: bool = False

    @property
    def doubt(self) -> Doubt:
        """How likely it is that only some ranks pass: ``strong`` if the condition is the rank itself."""
        if not self.depends_on_rank or self.matched:
            return "none"
        return "strong" if self.cause == "rank" or self.kind == "except" else "weak"

    def __str__(self) -> str:
        """The condition as text."""
        if self.kind in ("return", "continue", "break", "raise"):
            word = "in" if self.text.startswith(("except", "for ", "while ")) else "if"
            return f"{self.kind} {word} {self.text}"
        if self.kind in ("if", "else", "case", "and"):
            return f"only if {self.text}"
        return f"{self.kind} {self.text}".strip() if self.kind in ("while", "except") else self.text


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition with its test, and the result of the test on ranks that pass."""

    condition: Condition
    test: ast.expr | None = None
    way: bool = True


@dataclass(slots=True)
class ExitScope:
    """A function, loop or ``try`` that can be left early, with the conditions that left it so far."""

    kind: Literal["function", "loop", "try"]
    base: int  # number of guards around it
    left: list[Guard] = field(default_factory=list[Guard])
    skipped: list[Guard] = field(default_factory=list[Guard])  # of this iteration only

    def add(self, guard: Guard, round_only: bool = False) -> None:
        into = self.skipped if round_only else self.left
        new = guard.condition
        if all((new.line, new.kind, new.text) != (g.condition.line, g.condition.kind, g.condition.text) for g in into):
            into.append(guard)


def surest(guards: Iterable[Guard]) -> Guard | None:
    """The guard most certain to differ between ranks; None if none does."""
    differing = [guard for guard in guards if guard.condition.depends_on_rank]
    return min(
        differing, key=lambda guard: (guard.condition.matched, CAUSES.index(guard.condition.cause)), default=None
    )


def leaving(kind: Kind, guards: list[Guard]) -> Guard | None:
    """The guard that a ``return``, ``continue``, ``break`` or ``raise`` under these guards puts on what follows."""
    guard = surest(guards)
    if guard is None:
        return None
    condition = guard.condition
    inner: list[Condition] = []
    text = str(condition) if condition.kind in ("except", "for", "while") else condition.text
    if condition.kind in _ARMS:  # from the decision that differs inwards: all of it must hold for a rank to leave
        inner = [other.condition for other in guards[guards.index(guard) :] if other.condition.kind in _ARMS]
        text = " and ".join(dict.fromkeys(other.text for other in inner[:3]))
    matched = all(g.condition.matched for g in guards if g.condition.depends_on_rank)
    line = inner[-1].line if inner else condition.line
    return Guard(replace(condition, line=line, kind=kind, text=text, matched=matched), guard.test, not guard.way)


_ARMS = ("if", "else", "case", "and")
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


def negated(test: ast.expr) -> str:
    """``rank != 0`` for ``rank == 0``."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return shown(test.operand)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return shown(ast.Compare(test.left, [_OPPOSITE[type(test.ops[0])]()], test.comparators))
    plain = isinstance(test, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    return f"not {shown(test)}" if plain else f"not ({shown(test)})"


_THE_SAME_EVERYWHERE = frozenset({
    "ImportError", "ModuleNotFoundError", "KeyboardInterrupt", "SystemExit", "GeneratorExit", "NotImplementedError",
    "AttributeError", "NameError",
})  # fmt: skip


def caught(handler: ast.ExceptHandler, raised: Mapping[str, list[bool]]) -> tuple[str, str]:
    """What a handler catches, as text, and whether one rank alone can meet it: ``failure``, ``data`` or nothing.

    ``raised``: exceptions that the project raises itself, and whether a rank can be alone in it.
    """
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type] if handler.type else []
    names = [last_name(kind) for kind in kinds]
    text = shown(handler.type) if handler.type is not None else ""
    if names and all(name in _THE_SAME_EVERYWHERE or (name in raised and not any(raised[name])) for name in names):
        return text, ""
    return text, "data" if names == ["StopIteration"] else "failure"


def swallows(handlers: list[ast.ExceptHandler], raised: Mapping[str, list[bool]]) -> ast.ExceptHandler | None:
    """The first handler after which a rank continues although it failed where others may not have."""
    return next((handler for handler in handlers if caught(handler, raised)[1] and not _goes_down(handler.body)), None)


def _goes_down(body: list[ast.stmt]) -> bool:
    """Whether these statements always end in ``raise`` or the end of the process."""
    for statement in body:
        if isinstance(statement, ast.Raise):
            return True
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            called = whole_text(statement.value.func)[:60]
            if called in ("sys.exit", "exit", "quit", "os._exit", "os.abort") or called.endswith(".abort"):
                return True
        if (
            isinstance(statement, ast.If)
            and statement.orelse
            and _goes_down(statement.body)
            and _goes_down(statement.orelse)
        ):
            return True
        if isinstance(statement, (ast.With, ast.AsyncWith)) and _goes_down(statement.body):
            return True
    return False
