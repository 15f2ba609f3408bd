"""Expressions of the user's source: their names and their text."""

from __future__ import annotations

import ast

from ddpnb.texts import shortened

SHORT = 60  # characters of an expression


def dotted(expr: ast.expr) -> str | None:
    """``a.b.c`` as text; None for anything else."""
    parts: list[str] = []
    while isinstance(expr, ast.Attribute):
        parts.append(expr.attr)
        expr = expr.value
    if not isinstance(expr, ast.Name):
        return None
    return ".".join([expr.id, *reversed(parts)])


def last_name(expr: ast.expr | None) -> str:
    """``c`` of ``a.b.c`` and of a call of it."""
    if isinstance(expr, ast.Attribute):
        return expr.attr
    if isinstance(expr, ast.Call):
        return last_name(expr.func)
    return expr.id if isinstance(expr, ast.Name) else ""


def keyword(call: ast.Call, *names: str) -> ast.expr | None:
    """The argument that a call passes by one of these names."""
    return next((argument.value for argument in call.keywords if argument.arg in names), None)


def all_arguments(call: ast.Call) -> list[ast.expr]:
    """The arguments of a call, by position and by name."""
    return [*call.args, *(argument.value for argument in call.keywords)]


def whole_text(expr: ast.AST) -> str:
    """An expression as text, on one line. It is cached on the node."""
    text: str | None = getattr(expr, "_text", None)
    if text is None:
        try:
            text = " ".join(ast.unparse(expr).split())
        except RecursionError:  # Python parses deeper trees than it prints
            text = "..."
        expr._text = text  # type: ignore[attr-defined]
    return text


def shown(expr: ast.AST) -> str:
    """An expression as text, on one line, not too long."""
    return shortened(whole_text(expr), SHORT)


def bare(target: ast.expr) -> str:
    """A loop's target as it is written: without the brackets of a tuple."""
    text = shown(target)
    return text[1:-1] if isinstance(target, ast.Tuple) and text.endswith(")") else text
