"""Statements of one kind: those that set a key of a store, and those that let tensors require gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from ddpnb.recording.source.branches import tree

_SETS = frozenset(("set", "compare_set", "add", "append"))


@lru_cache(maxsize=64)
def key_lines(source: str) -> tuple[tuple[int, str], ...]:
    """Each line that sets a key whose text it shows, and the key; what is put in at run time is left out (``*``)."""
    lines: list[tuple[int, str]] = []
    for node in _nodes(source):
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=[ast.Constant(value=str(key)), _, *_]) if name in _SETS:
                lines.append((node.lineno, key))
            case ast.Call(func=ast.Attribute(attr=name), args=[ast.JoinedStr(values=parts), _, *_]) if name in _SETS:
                key = "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in parts)
                lines.append((node.lineno, key))
            case _:
                pass
    return tuple(sorted(lines))


@lru_cache(maxsize=64)
def requiring(source: str) -> frozenset[int]:
    """The lines of a file that set ``requires_grad``, without those that set it to False."""
    return frozenset(node.lineno for node in _nodes(source) if _requires(node))  # type: ignore[attr-defined]


def _nodes(source: str) -> Iterator[ast.AST]:
    parsed = tree(source)
    return ast.walk(parsed) if parsed is not None else iter(())


def _requires(node: ast.AST) -> bool:
    match node:
        case ast.Assign(targets=targets, value=value):
            given = [value] if any(getattr(target, "attr", "") == "requires_grad" for target in targets) else None
        case ast.Call(func=ast.Attribute(attr="requires_grad_"), args=arguments, keywords=named):
            given = [*arguments, *(one.value for one in named)]
        case _:
            given = None
    return given is not None and not any(isinstance(one, ast.Constant) and one.value is False for one in given)
