"""Lines that set a key of a store."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from ddpnb.recording.source.branches import tree

_SETS = frozenset(("set", "compare_set", "add", "append"))


@lru_cache(maxsize=64)
def key_lines(source: str) -> tuple[tuple[int, str], ...]:
    """Each line that sets a key whose text it shows, and the key; what is put in at run time is left out (``*``)."""
    parsed = tree(source)
    return tuple(sorted(_key_lines(parsed))) if parsed is not None else ()


def _key_lines(parsed: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(parsed):
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=[ast.Constant(value=str(key)), _, *_]) if name in _SETS:
                yield node.lineno, key
            case ast.Call(func=ast.Attribute(attr=name), args=[ast.JoinedStr(values=parts), _, *_]) if name in _SETS:
                yield node.lineno, "".join(str(p.value) if isinstance(p, ast.Constant) else "*" for p in parts)
            case _:
                pass
