"""The values that statements bind, collect, return and raise."""

from __future__ import annotations

import ast
from dataclasses import replace

from ddpnb.lint import vocabulary as words
from ddpnb.lint.calling import Calling
from ddpnb.lint.conditions import surest
from ddpnb.lint.known import OWN_DATA, PLAIN, SAME, Value, join
from ddpnb.lint.matching import leaves
from ddpnb.source.expressions import bare, dotted, last_name, shown, whole_text


class Binds(Calling):
    """The effect of one function's statements on its values."""

    def _simple(self, node: ast.stmt) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._calls(child)
        values = self.values
        if not self._dead:
            if isinstance(node, ast.Assign):
                value = values.of(node.value)
                for target in node.targets:
                    values.assign(target, self._with_line(value, target, node))
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                values.assign(node.target, self._with_line(values.of(node.value), node.target, node))
            elif isinstance(node, ast.AugAssign):
                values.assign(node.target, replace(join(values.of(node.target), values.of(node.value)), expr=None))
            elif isinstance(node, ast.Expr):
                self._collects(node.value)
            elif isinstance(node, ast.Return):
                self._return(node)
            elif isinstance(node, ast.Raise) and node.exc is not None:
                self._raises(node.exc)
        kind = leaves(node)
        if kind:
            self._leave(kind)

    def _with_line(self, value: Value, target: ast.expr, node: ast.stmt) -> Value:
        """The value, with the line of its assignment in its words."""
        name = dotted(target)
        if name is None or value.cause != "rank" or value.expr is None:
            return value
        made = f"`{name}` is `{shown(value.expr)}` (line {node.lineno})"
        if value.expr is not _right_side(node) or name == whole_text(value.expr):
            return value  # only an alias
        known = any(
            said in value.words for said in (", and ", "by its name", "is rank-dependent", "is set per process")
        )
        further = "" if known else f", and {value.words}"
        return replace(value, words=made + further)

    def _collects(self, expr: ast.expr) -> None:
        """losses.append(loss): the list holds what the loss is."""
        if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.args:
            key = dotted(expr.func.value)
            if key is not None and expr.func.attr in ("append", "extend", "add", "update", "insert", "put"):
                given = join(*(self.values.of(argument) for argument in expr.args))
                if given.cause in OWN_DATA and not self.values.env.get(key, SAME).cause:
                    self.values.env[key] = Value("data", given.words, holder=True)

    def _return(self, node: ast.Return) -> None:
        value = self.values.of(node.value)
        guard = surest(self._guards)
        differs = guard is not None and guard.condition.cause not in ("failure", "shard", "stream")
        if guard is not None and differs and value.plain and not value.cause and not is_none(node.value):
            value = Value(guard.condition.cause, guard.condition.reason, None, True, value.follows)
        # A test of a parameter decides what is returned: the result follows the parameter.
        follows = frozenset[str]().union(*(self.values.of(g.test).follows for g in self._guards if g.test is not None))
        self._returned.append(replace(value, follows=value.follows | (follows if value.plain else frozenset())))

    def _raises(self, expr: ast.expr) -> None:
        """A raised exception: whether one rank alone may raise it."""
        project = self._knowledge.project
        exception = project.resolve(self.scope, expr.func if isinstance(expr, ast.Call) else expr)
        if exception is not None and exception.path and exception.name in project.modules[exception.path].classes:
            alone = any(guard.condition.depends_on_rank for guard in self._standing())
            self._learned.raised.setdefault(last_name(expr), []).append(alone)

    def _targets(self, node: ast.For | ast.AsyncFor) -> None:
        """Bind a loop's target: batches are rank-specific, numbers are equal on all ranks."""
        self._target(node.target, node.iter, node.lineno)

    def _target(self, target: ast.expr, source: ast.expr, line: int) -> None:
        if isinstance(source, ast.Call) and isinstance(target, (ast.Tuple, ast.List)):
            name, parts = last_name(source.func), target.elts
            if name == "enumerate" and len(parts) == 2 and source.args:
                self.values.assign(parts[0], PLAIN)
                self._target(parts[1], source.args[0], line)
                return
            if name == "zip" and len(parts) == len(source.args):
                for part, iterable in zip(parts, source.args, strict=True):
                    self._target(part, iterable, line)
                return
            inner = source.args[0] if source.args else None
            if isinstance(inner, ast.Call) and last_name(inner.func) in ("enumerate", "zip"):  # tqdm(enumerate(...))
                self._target(target, inner, line)
                return
        value = self.values.of(source)
        if value.cause or _yields_batches(source):
            batch = (
                f"it is computed from the rank's own batch `{bare(target)}` (line {line}) and not reduced across ranks"
            )
            self.values.assign(target, Value("data", value.words if value.cause == "data" else batch))
        else:
            self.values.assign(target, PLAIN)


def _right_side(node: ast.stmt) -> ast.expr | None:
    """The right side of an assignment."""
    return node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None


def is_none(expr: ast.expr | None) -> bool:
    """Whether the expression is missing or None."""
    return expr is None or (isinstance(expr, ast.Constant) and expr.value is None)


def _yields_batches(expr: ast.expr) -> bool:
    if isinstance(expr, ast.Call):
        if last_name(expr.func) in ("range", "len"):
            return False
        inside = [*expr.args, *([expr.func.value] if isinstance(expr.func, ast.Attribute) else [])]
        return any(_yields_batches(part) for part in inside)
    return isinstance(expr, (ast.Name, ast.Attribute)) and words.is_data(last_name(expr))
