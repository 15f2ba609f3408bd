"""What the names visible in a function are bound to: local, enclosing, and of other modules."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from ddpnb.lint import vocabulary as words
from ddpnb.lint.known import SAME, Facts, Value, join
from ddpnb.lint.modules import Project, Ref
from ddpnb.lint.scopes import Scope
from ddpnb.source.expressions import dotted, last_name, variable_behind


class Names:
    """The values of one function's names during a walk."""

    def __init__(
        self,
        project: Project,
        facts: Facts,
        learned: Facts,
        scope: Scope,
        operation: Callable[[ast.Call], str | None],
    ) -> None:
        self._project = project
        self._facts = facts  # of the previous pass
        self._learned = learned  # of this pass
        self.scope = scope
        self.env: dict[str, Value] = {}
        self._operation = operation
        for parameter in scope.parameters:
            self.env[parameter.arg] = replace(
                self._parameter(parameter.arg), follows=frozenset({parameter.arg}), plain=False
            )

    def _parameter(self, name: str) -> Value:
        given = self._facts.arguments.get((self.scope.key, name), [])
        named = words.tells_rank(name)
        value = join(*given) if given else SAME
        if value.cause:
            return Value(value.cause, value.words)
        if not named or (given and self.scope.key not in self._facts.handed_on and all(v.plain for v in given)):
            return SAME
        return Value("rank", f"`{name}` is the rank, judging by its name")

    def of(self, expr: ast.expr | None) -> Value:
        """What is known of an expression's value at this point of the walk."""
        raise NotImplementedError

    def assign(self, target: ast.expr, value: Value) -> None:
        """Bind a target; its old value is dropped."""
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = value.expr.elts if isinstance(value.expr, (ast.Tuple, ast.List)) else []
            for index, part in enumerate(target.elts):
                if len(parts) == len(target.elts):
                    self.assign(part, self.of(parts[index]))
                else:
                    name = last_name(part)
                    unsure = value.cause in ("", "rank") and not value.plain
                    self.assign(part, self._by_name(name) if unsure and name else Value(value.cause, value.words))
        elif isinstance(target, ast.Starred):
            self.assign(target.value, Value(value.cause, value.words))
        elif isinstance(target, (ast.Name, ast.Attribute)):
            key = dotted(target)
            if key is None:
                return
            if not value.cause and not value.plain and isinstance(value.expr, ast.Call):
                named = self._by_name(last_name(target))  # rank, size = setup_somewhere_else()
                if named.cause and self._project.function(self._named(value.expr.func)) is None:
                    value = named
            for old in [old for old in self.env if old.startswith(f"{key}.")]:
                del self.env[old]
            self.env[key] = value
            if isinstance(target, ast.Attribute):
                self._learned.attributes.setdefault(target.attr, []).append(value)
        elif isinstance(target, ast.Subscript) and value.cause:
            key = dotted(target.value)
            if key is not None and key in self.env and not self.env[key].cause:
                self.env[key] = Value(value.cause, value.words)

    def agree(self, expr: ast.expr) -> None:
        """A collective made this value the same on every rank."""
        key = dotted(variable_behind(expr))
        if key is not None:
            self.env[key] = Value(words="agreed")

    def _by_name(self, name: str) -> Value:
        if words.is_rank(name):
            return Value("rank", f"`{name}` is the rank, judging by its name")
        if words.tells_rank(name):
            return Value("rank", f"`{name}` is true on one rank, judging by its name")
        return SAME

    def _named(self, expr: ast.expr) -> Ref | None:
        return self._project.resolve(self.scope, expr)

    def outside(self, expr: ast.expr) -> str:
        """The dotted name of something outside of the project; the source text if it is unknown."""
        ref = self._named(expr)
        if ref is not None:
            return "" if ref.path else ref.name
        return dotted(expr) or ""

    def _variable(self, expr: ast.expr) -> Value | None:
        """A name that an outer function, this module or another one binds."""
        if isinstance(expr, ast.Name):
            for here in self.scope.outer.outwards() if self.scope.outer is not None else ():
                kept = self._facts.variables.get(here.key, {})
                if expr.id in kept:
                    return replace(kept[expr.id], follows=frozenset())
            origin = self._imported(expr.id)
            if origin is not None:
                return self._facts.variables.get((origin[0], ""), {}).get(origin[1])
        elif isinstance(expr, ast.Attribute):
            base = self._named(expr.value)
            if base is not None and base.path and not base.name:
                return self._facts.variables.get((base.path, ""), {}).get(expr.attr)
        return None

    def _imported(self, name: str) -> tuple[str, str] | None:
        for here in self.scope.outwards():
            if name in here.imports:
                level, module, attribute = here.imports[name]
                path = self._project.locate(here.path, level, module)
                return (path, attribute) if path is not None and attribute else None
        return None
