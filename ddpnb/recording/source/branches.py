"""How two lines of the user's source are related: branches of one decision, or steps of one path.

Two ranks in different calls may have taken different branches (then each call stands
for the other), or one may have skipped the call of the other.
"""

from __future__ import annotations

import ast
import warnings
from functools import lru_cache
from typing import Literal

from ddpnb.recording.source.expressions import SHORT, whole_text
from ddpnb.texts import shortened

Relation = Literal["same", "exclusive", "sequence", "unknown"]


@lru_cache(maxsize=64)
def tree(source: str) -> ast.Module | None:
    """The syntax tree of a file; None if it is not Python."""
    try:
        return _parsed(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def trouble(source: str) -> tuple[int, str] | None:
    """Why a file has no syntax tree: a line (0 if unknown) and the reason."""
    try:
        _parsed(source)
    except SyntaxError as error:
        return error.lineno or 0, str(error.msg)
    except ValueError as error:  # a null byte
        return 0, str(error)
    except (RecursionError, MemoryError):
        return 0, "nested too deeply"
    return None


def _parsed(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about the user's code are not for this log
        return ast.parse(source)


Path = list[tuple[ast.AST, str]]
LOOPS = (ast.For, ast.While, ast.AsyncFor)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def path_of(source: str, line: int) -> Path:
    """The statements around ``line``, outermost first, each with the arm of it that holds the line.

    The arm of the last one is empty: the line is that statement itself, or its header.
    """
    node: ast.AST | None = tree(source)
    path: Path = []
    while node is not None:
        arm, inner = "", None
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                    first, last = span(child)
                    if first <= line <= last:
                        # Each handler and each case is an arm of its own.
                        arm = name if isinstance(child, ast.stmt) else f"{name} {first}"
                        inner = child
        if inner is None and isinstance(node, ast.Module):
            return []
        path.append((node, arm))
        node = inner
    return path


def span(node: ast.AST) -> tuple[int, int]:
    """First and last line of a statement, its decorators included."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno, node.body[-1].end_lineno or node.body[-1].lineno
    first = node.lineno  # type: ignore[attr-defined]
    decorators = getattr(node, "decorator_list", [])
    if decorators:
        first = min(first, *(d.lineno for d in decorators))
    return first, getattr(node, "end_lineno", None) or first


def relation(source: str, line: int, other: int) -> Relation:
    """How two lines of one file stand to each other.

    ``exclusive``: no run of the function passes both (two arms of an ``if`` or ``match``);
    ``sequence``: a run can pass both; ``unknown``: other functions, or no readable source.
    """
    if line == other:
        return "same"
    paths = path_of(source, line), path_of(source, other)
    if not paths[0] or not paths[1]:
        return "unknown"
    own = [_function_of(path) for path in paths]
    if own[0] is not own[1]:
        return "unknown"
    for (node_a, arm_a), (node_b, arm_b) in zip(*paths, strict=False):
        if node_a is not node_b:
            first, arm = (node_a, arm_a) if line < other else (node_b, arm_b)
            return "exclusive" if _leaves(first, arm) else "sequence"
        if arm_a != arm_b:
            return "exclusive" if _excludes(node_a, arm_a, arm_b) else "sequence"
    return "sequence"


_LEAVING = (ast.Return, ast.Raise)  # an iteration that is left may be followed by another


def _leaves(node: ast.AST, arm: str) -> bool:
    """Whether this arm of an ``if`` ends by leaving: the code after the ``if`` is then its other arm."""
    body = getattr(node, arm, None) if isinstance(node, ast.If) and arm else None
    return isinstance(body, list) and bool(body) and isinstance(body[-1], _LEAVING)


def _excludes(node: ast.AST, first: str, second: str) -> bool:
    """Whether no run passes both of these arms of a statement."""
    if not first or not second:  # the header comes before every arm
        return False
    if isinstance(node, (ast.If, ast.Match)):
        return True
    past_the_body = [arm.startswith("handlers") or arm == "orelse" for arm in (first, second)]
    return isinstance(node, (ast.Try, ast.TryStar)) and all(past_the_body)


def _function_of(path: Path) -> ast.AST | None:
    return next((n for n, arm in reversed(path) if isinstance(n, FUNCTIONS) and arm == "body"), None)


def function_at(source: str, line: int) -> str:
    """The name of the function that holds a line."""
    return getattr(_function_of(path_of(source, line)), "name", "<module>")


def guards_of(source: str, line: int) -> list[tuple[int, str]]:
    """Every ``if`` around ``line`` in its function, innermost first: its line and its condition as text."""
    guards: list[tuple[int, str]] = []
    for node, arm in reversed(path_of(source, line)):
        if isinstance(node, FUNCTIONS) and arm == "body":
            break
        if isinstance(node, ast.If) and arm:
            text = whole_text(node.test)
            guards.append((node.lineno, text if arm == "body" else f"not ({text})"))
    return guards


def ways_around(source: str, line: int) -> list[tuple[int, str, str]]:
    """Statements that can keep a rank from reaching ``line``: (their line, the word, the condition).

    They are the ``continue``, ``break``, ``return`` and ``raise`` that stand before it in its loop
    (or function) under an ``if`` that does not hold the line itself.
    """
    path = path_of(source, line)
    for node, arm in reversed(path):
        if isinstance(node, (*LOOPS, *FUNCTIONS)) and arm == "body":
            break
    else:
        return []
    ways: list[tuple[int, str, str]] = []
    words = {ast.Continue: "continue", ast.Break: "break", ast.Return: "return", ast.Raise: "raise"}

    def visit(statements: list[ast.stmt], condition: str) -> None:
        for statement in statements:
            if statement.lineno >= line or isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                continue
            word = words.get(type(statement))
            if word is not None and condition:
                ways.append((statement.lineno, word, condition))
            if isinstance(statement, ast.If):
                test = whole_text(statement.test)
                holds = span(statement)[1] >= line
                visit(statement.body, condition if holds else test)
                visit(statement.orelse, condition if holds else f"not ({test})")
            elif isinstance(statement, (ast.With, ast.AsyncWith, ast.Try)):
                visit(statement.body, condition)

    visit(node.body, "")
    return ways


def decisions(source: str, line: int) -> list[str]:
    """Conditions that can keep a rank from ``line``, as sentences."""
    guards = guards_of(source, line)[:1]
    if guards:
        return [f"Guarded by `if {condition}` at line {at}." for at, condition in guards]
    return [
        f"Line {at} may skip it (`{word}` if {condition})." for at, word, condition in ways_around(source, line)[:3]
    ]


def candidates(source: str, line: int, ended: bool = False) -> list[tuple[int, str]]:
    """The statements of the function that can keep a rank from ``line``: its line, and the statement in short.

    ``ended``: the rank has ended, so continuing with the next iteration is no explanation.
    """
    ways = [way for way in ways_around(source, line) if not (ended and way[1] == "continue")]
    guards = [(at, condition) for at, condition in guards_of(source, line) if "__name__" not in condition]
    return [(at, f"`if {shortened(condition, SHORT)}`") for at, condition in guards] + [
        (at, f"`if {shortened(condition, SHORT)}: {word}`") for at, word, condition in ways
    ]


def other_ways(source: str, line: int) -> bool:
    """Whether something that ``candidates`` does not list may keep a rank from ``line``.

    A ``try`` with handlers, a ``match`` or a ``while`` around it; before it a jump that is under none of the listed
    conditions, in a handler or a loop.
    """
    path = path_of(source, line)
    inside = next(
        (n for n in reversed(range(len(path))) if isinstance(path[n][0], FUNCTIONS) and path[n][1] == "body"), 0
    )
    for node, arm in path[inside:]:
        swallows = isinstance(node, (ast.Try, ast.TryStar)) and bool(node.handlers)
        if arm and (swallows or isinstance(node, (ast.Match, ast.While))):
            return True
    listed = {at for at, _, _ in ways_around(source, line)}
    holders = [node for node, arm in path if isinstance(node, (*LOOPS, *FUNCTIONS)) and arm == "body"]
    return bool(holders) and any(one.lineno < line and one.lineno not in listed for one in jumps(holders[-1]))


def jumps(holder: ast.AST) -> list[ast.stmt]:
    """The statements that leave this loop or function, or its iteration."""
    leaving: list[ast.stmt] = []
    waiting = [(child, False) for child in ast.iter_child_nodes(holder)]
    while waiting:
        node, nested = waiting.pop()
        if isinstance(node, (ast.Return, ast.Raise)) or (isinstance(node, (ast.Continue, ast.Break)) and not nested):
            leaving.append(node)
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            waiting += [(child, nested or isinstance(node, LOOPS)) for child in ast.iter_child_nodes(node)]
    return leaving


def handler_at(source: str, line: int) -> tuple[int, int] | None:
    """First and last line of the innermost handler in the body of which a line is."""
    handlers = [node for node, arm in path_of(source, line) if isinstance(node, ast.ExceptHandler) and arm == "body"]
    return span(handlers[-1]) if handlers and line > handlers[-1].lineno else None
