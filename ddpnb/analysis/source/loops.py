"""The loops around a line of the user's source."""

from __future__ import annotations

import ast

from ddpnb.analysis.source.branches import FUNCTIONS, LOOPS, path_of, span
from ddpnb.analysis.source.expressions import shown

Loop = ast.For | ast.AsyncFor | ast.While


def loops_of(source: str, line: int) -> list[Loop]:
    """The loops around ``line`` in its function, innermost first; a ``while`` holds its condition."""
    found: list[Loop] = []
    for node, arm in reversed(path_of(source, line)):
        if isinstance(node, FUNCTIONS) and arm == "body":
            break
        if isinstance(node, LOOPS) and (arm == "body" or (isinstance(node, ast.While) and not arm)):
            found.append(node)
    return found


def loop_around(source: str, line: int) -> tuple[int, int] | None:
    """First and last line of the innermost loop around ``line`` in its function."""
    loops = loops_of(source, line)
    return span(loops[0]) if loops else None


def loop_header(source: str, line: int) -> tuple[int, str] | None:
    """Line and text of the header of the only loop around ``line`` in its function; None if there are several."""
    loops = loops_of(source, line)
    if len(loops) != 1:
        return None
    loop = loops[0]
    if isinstance(loop, ast.While):
        return loop.lineno, f"`while {shown(loop.test)}`"
    return loop.lineno, f"`for {shown(loop.target)} in {shown(loop.iter)}`"


def every_iteration(source: str, line: int) -> bool:
    """Whether every whole iteration of the innermost loop around ``line`` comes to it.

    Not if it stands in a branch, in a ``try`` or ``with`` that may swallow an exception, or after something that may
    leave the iteration (``continue``) or the function (``return``).
    """
    path = path_of(source, line)
    depths = [depth for depth, (node, arm) in enumerate(path) if isinstance(node, LOOPS) and arm == "body"]
    if not depths:
        return False
    inside = [node for node, arm in path[depths[-1] + 1 :] if arm]
    if any(isinstance(node, (ast.If, ast.Try, ast.TryStar, ast.Match, ast.match_case)) for node in inside):
        return False
    leaving = {ast.Continue: True, ast.Return: True}
    waiting = list(ast.iter_child_nodes(path[depths[-1]][0]))
    while waiting:
        node = waiting.pop()
        if type(node) in leaving and (isinstance(node, ast.Return) or getattr(node, "lineno", line) < line):
            return False
        if isinstance(node, LOOPS):  # its own jumps; a return inside still leaves
            waiting += [one for one in ast.walk(node) if isinstance(one, ast.Return)]
        elif not isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)
    return True
