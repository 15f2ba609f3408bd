"""Which statement of the source decided that a line did not run: by the lines that ran, not by how it is spelled."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ddpnb.source.branches import FUNCTIONS, LOOPS, Path, path_of, span

_JUMPS: dict[type[ast.AST], str] = {
    ast.Continue: "continue",
    ast.Break: "break",
    ast.Return: "return",
    ast.Raise: "raise",
}
_DECIDES = (ast.If, ast.Match, *LOOPS)


def jump_at(source: str, line: int) -> str:
    """How the statement at a line leaves the usual way; empty if it does not, or if the line holds more than it.

    ``continue``, ``break``, ``return``, ``raise``; ``except`` for a line in the body of a handler: its first line also runs for
    exceptions that it does not handle. The ``return`` with which a function always ends leaves no way.
    """
    path = path_of(source, line)
    if not path:
        return ""
    if any(arm.startswith("handlers") for _, arm in path):
        return "except" if handler_at(source, line) is not None else ""
    word = _JUMPS.get(type(path[-1][0]), "")
    conditional = any(isinstance(node, _DECIDES) for node, _ in path[_function(path) + 1 : -1])
    return word if word and conditional and _alone(path, line) else ""


def handler_at(source: str, line: int) -> tuple[int, int] | None:
    """First and last line of the innermost handler in the body of which a line is."""
    handlers = [node for node, arm in path_of(source, line) if isinstance(node, ast.ExceptHandler) and arm == "body"]
    return span(handlers[-1]) if handlers and line > handlers[-1].lineno else None


def _function(path: Path) -> int:
    """The place of the innermost function in a path."""
    return max((depth for depth, (node, _) in enumerate(path) if isinstance(node, FUNCTIONS)), default=-1)


def loop_before(source: str, line: int, after: int) -> int | None:
    """The header of the outermost loop around ``line``, in its function, that ends before the line ``after`` of that function."""
    path, other = path_of(source, line), path_of(source, after)
    own = _function(path)
    if not path or not other or own != _function(other) or (own >= 0 and path[own][0] is not other[own][0]):
        return None
    loops = (node for node, arm in path[own + 1 :] if isinstance(node, LOOPS) and arm == "body")
    return next((span(loop)[0] for loop in loops if span(loop)[1] < after), None)


def _alone(path: Path, line: int) -> bool:
    """Whether a statement has its first line for itself: with ``if x: return`` on one line, that it ran tells nothing."""
    parent, arm = path[-2]
    siblings = _arm(parent, arm)
    return getattr(parent, "lineno", 0) != line and sum(line in range(*_lines(one)) for one in siblings) == 1


def _lines(statement: ast.stmt) -> tuple[int, int]:
    first, last = span(statement)
    return first, last + 1


@dataclass(frozen=True, slots=True)
class Decision:
    """A statement of which the header ran, and nothing of the arm with a certain line; ``loop``: its body did not run."""

    line: int
    loop: bool


def decided_against(source: str, line: int, ran: Mapping[int, int]) -> list[Decision]:
    """The statements around ``line``, in its function, that were run without the arm that holds the line, in their order.

    Args:
        source: the text of the file.
        line: it did not run.
        ran: the lines that did, each with its place in their order; of a loop that was running already they may begin anywhere.
    """
    path = path_of(source, line)
    decisions: list[tuple[int, Decision]] = []
    for node, arm in path[_function(path) + 1 :]:
        body = _arm(node, arm)
        if not body or not isinstance(node, _DECIDES):
            continue
        header = [ran[at] for at in range(node.lineno, max(_first_inside(node), node.lineno + 1)) if at in ran]
        inside = [ran[at] for statement in body for at in range(*_lines(statement)) if at in ran]
        if header and all(place < min(header) for place in inside):
            decisions.append((min(header), Decision(node.lineno, isinstance(node, LOOPS))))
    return [decision for _, decision in sorted(decisions, key=lambda one: one[0])]


def _arm(node: ast.AST, arm: str) -> list[ast.stmt]:
    """The statements of an arm as ``path_of`` names it. The pattern of a case is not one of them."""
    name, _, first = arm.partition(" ")
    value: Any = getattr(node, name, None) if name else None
    if not isinstance(value, list):
        return []
    children = cast("list[Any]", value)
    return next((child.body for child in children if span(child)[0] == int(first)), []) if first else children


def _first_inside(node: ast.AST) -> int:
    """The line on which the first arm of a statement begins."""
    children = node.cases if isinstance(node, ast.Match) else node.body  # type: ignore[attr-defined]
    return span(children[0])[0]
