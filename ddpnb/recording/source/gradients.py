"""Lines that let tensors require gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from ddpnb.recording.source.branches import tree


@lru_cache(maxsize=64)
def requiring(source: str) -> frozenset[int]:
    """The lines of a file that set ``requires_grad``, without those that set it to False."""
    parsed = tree(source)
    return frozenset(_lines(parsed)) if parsed is not None else frozenset()


def _lines(parsed: ast.Module) -> Iterator[int]:
    for node in ast.walk(parsed):
        match node:
            case ast.Assign(targets=targets, value=value) if not _is_false(value):
                if any(isinstance(target, ast.Attribute) and target.attr == "requires_grad" for target in targets):
                    yield node.lineno
            case ast.Call(func=ast.Attribute(attr="requires_grad_"), args=arguments, keywords=named):
                if not any(map(_is_false, [*arguments, *(one.value for one in named)])):
                    yield node.lineno
            case _:
                pass


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False
