"""Lines that remove or rename files, and the texts of which the path is made there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache

from ddpnb.source.branches import tree

_FUNCTIONS = frozenset(("remove", "unlink", "rmdir", "removedirs", "rename", "renames", "replace", "rmtree", "move"))
_MODULES = ("os", "shutil")
_METHODS = {"unlink": 0, "rmdir": 0, "rename": 1, "replace": 1}  # of paths: arguments, by which a str is told apart
_DEPTH = 4  # names that are followed


@lru_cache(maxsize=64)
def removals(source: str) -> Mapping[int, tuple[str, ...]]:
    """Line -> the texts in what it removes, as far as names are assigned once; lines of which none is known are left out."""
    parsed = tree(source)
    if parsed is None:
        return {}
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(parsed):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                assigned.setdefault(ast.unparse(target), []).append(node.value)
    once = {name: values[0] for name, values in assigned.items() if len(values) == 1}
    calls = (node for node in ast.walk(parsed) if isinstance(node, ast.Call))
    lines = {call.lineno: tuple(_texts(what, once, _DEPTH)) for call in calls if (what := _removed(call)) is not None}
    return {line: texts for line, texts in lines.items() if texts}


def _removed(call: ast.Call) -> ast.expr | None:
    """The expression for the path that a call removes."""
    match call.func:
        case ast.Name(id=name) if name in _FUNCTIONS and call.args:
            return call.args[0]
        case ast.Attribute(value=ast.Name(id=module), attr=name) if module in _MODULES and name in _FUNCTIONS:
            return call.args[0] if call.args else None
        case ast.Attribute(value=path, attr=name) if _METHODS.get(name) == len(call.args):
            return path
        case _:
            return None


def _texts(expression: ast.expr, assigned: Mapping[str, ast.expr], depth: int) -> Iterator[str]:
    for node in ast.walk(expression):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, (ast.Name, ast.Attribute)) and depth and (value := assigned.get(ast.unparse(node))):
            yield from _texts(value, assigned, depth - 1)
