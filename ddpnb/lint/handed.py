"""Functions that start an asynchronous call and return its work, with or without its output tensors."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from ddpnb.lint.scopes import Scope
from ddpnb.source.expressions import dotted


@dataclass(frozen=True, slots=True)
class Handed:
    """The call inside, the work's place in what is returned (None: it is all), and the names of the others there."""

    call: ast.Call
    place: int | None
    returned: tuple[str | None, ...]


def handed_back(scope: Scope, is_asynchronous: Callable[[ast.Call], bool]) -> Handed | None:
    """What a function without branches returns, if it starts exactly one asynchronous call."""
    node = scope.node
    body = node.body if not isinstance(node, ast.Module) else []
    last = body[-1] if body else None
    if not isinstance(last, ast.Return) or last.value is None or any(isinstance(one, _COMPOUND) for one in body):
        return None
    begun = [part for one in body for part in ast.walk(one) if isinstance(part, ast.Call) and is_asynchronous(part)]
    if len(begun) != 1:
        return None
    names = {
        target.id
        for one in body
        if isinstance(one, ast.Assign) and one.value is begun[0]
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    parts = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    places = [
        n for n, part in enumerate(parts) if part is begun[0] or (isinstance(part, ast.Name) and part.id in names)
    ]
    if len(places) != 1:
        return None
    alone = not isinstance(last.value, ast.Tuple)
    return Handed(begun[0], None if alone else places[0], tuple(dotted(part) for part in parts))


_COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match, ast.AsyncFor, ast.AsyncWith)


def outside(handed: Handed, scope: Scope, call: ast.Call, targets: list[str], inner: set[str]) -> set[str]:
    """The caller's names of what is called ``inner`` inside: those that it is given, and those that it has given."""
    found = {
        target
        for place, target in enumerate(targets)
        if place < len(handed.returned) and place != handed.place and handed.returned[place] in inner
    }
    parameters = [one.arg for one in scope.parameters]
    given: list[tuple[str, ast.expr]] = list(zip(parameters, call.args, strict=False))
    given += [(one.arg, one.value) for one in call.keywords if one.arg]
    found |= {name for parameter, value in given if parameter in inner and (name := dotted(value))}
    return found
