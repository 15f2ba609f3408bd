"""Lines that remove or rename files, and the texts of which the path is made there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from ddpnb.recording.source.branches import tree
from ddpnb.recording.source.names import passed

_FUNCTIONS = frozenset(("remove", "unlink", "rmdir", "removedirs", "rename", "renames", "replace", "rmtree", "move"))
_MODULES = ("os", "shutil")
_METHODS = {"unlink": 0, "rmdir": 0, "rename": 1, "replace": 1}  # of paths: arguments, by which a str is told apart
_DEPTH = 4  # names that are followed
_LOOKED_UP = frozenset(("get", "getenv", "pop"))  # whose arguments are no part of the path
# What is put in at run time: by %, by format(), or by a pattern of file names.
_PLACES = re.compile(r"%%|%(?:\(\w*\))?[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]|\{[^{}]*\}|[*?]+|\[[^\]]*\]")


@lru_cache(maxsize=64)
def removals(source: str) -> Mapping[int, tuple[str, ...]]:
    """Line -> the texts in what it removes, as far as names are given one value; lines of which none is known are left out."""
    parsed = tree(source)
    if parsed is None:
        return {}
    given: dict[str, list[ast.expr]] = {}
    calls: dict[str, list[ast.Call]] = {}
    functions: list[ast.FunctionDef] = []  # a parameter is given what calls pass
    for node in ast.walk(parsed):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    given.setdefault(ast.unparse(target), []).append(value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                given.setdefault(ast.unparse(target), []).append(value)
            case ast.For(target=ast.Name(id=name), iter=value):
                given.setdefault(name, []).append(value)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                calls.setdefault(name, []).append(node)
            case ast.FunctionDef():
                functions.append(node)
            case _:
                pass
    for function in functions:
        for call in calls.get(function.name, ()):
            for name, value in passed(function, call).items():
                given.setdefault(name, []).append(value)
    once = {name: values[0] for name, values in given.items() if len({ast.dump(value) for value in values}) == 1}
    lines = {
        call.lineno: tuple(_texts(what, once, _DEPTH))
        for ones in calls.values()
        for call in ones
        if (what := _removed(call)) is not None
    }
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


def _texts(expression: ast.AST, given: Mapping[str, ast.expr], depth: int) -> Iterator[str]:
    match expression:
        case ast.Constant(value=str(text)):
            yield from filter(None, _PLACES.split(text))
        case ast.Name() | ast.Attribute() if value := given.get(ast.unparse(expression)):
            if depth:
                yield from _texts(value, given, depth - 1)
        case ast.Subscript(value=inner):  # its index says where a part is looked up
            yield from _texts(inner, given, depth)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _LOOKED_UP:
            return
        case _:
            for node in ast.iter_child_nodes(expression):
                yield from _texts(node, given, depth)
