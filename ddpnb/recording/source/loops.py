"""The loops around a line of the user's source."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from ddpnb.recording.calls import Site
from ddpnb.recording.source.branches import FUNCTIONS, LOOPS, jumps, path_of, span
from ddpnb.recording.source.expressions import last_name, shown

Loop = ast.For | ast.AsyncFor | ast.While


def loops_of(source: str, line: int) -> list[Loop]:
    """The loops around ``line`` in its function, innermost first; a ``while`` holds its condition."""
    loops: list[Loop] = []
    for node, arm in reversed(path_of(source, line)):
        if isinstance(node, FUNCTIONS) and arm == "body":
            break
        if isinstance(node, LOOPS) and (arm == "body" or (isinstance(node, ast.While) and not arm)):
            loops.append(node)
    return loops


def loop_around(source: str, line: int) -> tuple[int, int] | None:
    """First and last line of the innermost loop around ``line`` in its function."""
    loops = loops_of(source, line)
    return span(loops[0]) if loops else None


def taken_from(source: str, line: int) -> tuple[int, str] | None:
    """The loop in whose body ``line`` works on what the loop gives: its line, and the text of what it iterates over.

    Not over numbers (``range``), and not where what is given is in order already (``sorted``).
    """
    loop = next((one for one in loops_of(source, line) if not isinstance(one, ast.While)), None)
    statement = next((node for node, _ in reversed(path_of(source, line))), None)
    if loop is None or not isinstance(statement, ast.stmt) or statement is loop:
        return None
    given = {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
    used = {one.id for one in ast.walk(statement) if isinstance(one, ast.Name)}
    over = loop.iter
    fixed = isinstance(over, ast.Call) and last_name(over.func) in ("range", "sorted", "reversed", "parameters")
    return None if fixed or not given & used else (loop.lineno, shown(over))


def every_iteration(sources: Mapping[str, str], path: Sequence[Site]) -> bool:
    """Whether every whole iteration of the loops around a path, callers included, comes to its end.

    Not if a line of it is in a branch, in a ``try`` or ``with`` that may swallow an exception, or after something
    that may leave the iteration (``continue``) or the function (``return``). Lines outside of all loops do not count.

    Args:
        sources: the text of the user's files.
        path: the lines by which the call was reached, outermost first.
    """
    looped = False
    for site in path:
        within = path_of(sources.get(site.file, ""), site.line)
        if not within:
            return False
        own = max((depth for depth, (node, _) in enumerate(within) if isinstance(node, FUNCTIONS)), default=0)
        loops = [
            depth
            for depth, (node, arm) in enumerate(within)
            if depth > own and isinstance(node, LOOPS) and arm == "body"
        ]
        if not looped and not loops:
            continue
        # A function that is called in a loop is a part of its iteration.
        first = own if looped else loops[0]
        looped = True
        if any(isinstance(node, _MAY_SWALLOW) for node, arm in within[first + 1 :] if arm):
            return False
        if any(_may_be_left(within[depth][0], site.line) for depth in {first, *loops}):
            return False
    return looped


_MAY_SWALLOW = (ast.If, ast.Try, ast.TryStar, ast.Match, ast.match_case, ast.With, ast.AsyncWith)


def _may_be_left(holder: ast.AST, line: int) -> bool:
    """Whether a ``continue`` of this loop, or a ``return``, of the loop or the function, may come before ``line``."""
    return any(
        isinstance(node, (ast.Continue, ast.Return))
        and (node.lineno < line or (isinstance(node, ast.Return) and isinstance(holder, LOOPS)))
        for node in jumps(holder)
    )
