"""One module: its functions and classes, and the names that each scope binds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from ddpnb.source.branches import FUNCTIONS


@dataclass(eq=False, slots=True)
class Scope:
    """A module or a function: its statements and the names that it binds."""

    path: str
    name: str  # "Trainer.fit", "main.inner"; "" for a module
    node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
    owner: str = ""  # the class of a method
    outer: Scope | None = None
    imports: dict[str, tuple[int, str, str]] = field(default_factory=dict[str, tuple[int, str, str]])
    aliases: dict[str, ast.expr] = field(default_factory=dict[str, ast.expr])
    makers: dict[str, ast.expr] = field(default_factory=dict[str, ast.expr])  # x = Maker(...): x -> Maker

    @property
    def key(self) -> tuple[str, str]:
        return self.path, self.name

    def outwards(self) -> Iterator[Scope]:
        """This scope and those around it, innermost first."""
        here: Scope | None = self
        while here is not None:
            yield here
            here = here.outer

    def method(self) -> Scope | None:
        """The method that this scope is, or is part of."""
        return next((scope for scope in self.outwards() if scope.owner), None)

    @property
    def parameters(self) -> list[ast.arg]:
        if isinstance(self.node, ast.Module):
            return []
        own = self.node.args
        return [*own.posonlyargs, *own.args, *own.kwonlyargs]


@dataclass(eq=False, slots=True)
class Module:
    path: str
    source: str
    scope: Scope
    functions: dict[str, Scope] = field(default_factory=dict[str, Scope])
    classes: dict[str, ast.ClassDef] = field(default_factory=dict[str, ast.ClassDef])
    lines: list[str] = field(default_factory=list[str])
    stars: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    attributes: dict[str, ast.expr] = field(default_factory=dict[str, ast.expr])  # "Class.x" -> its maker


class Reader:
    """Fills a module: its functions and classes, and what each scope imports and makes."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def read(self) -> None:
        self._block(self._module.scope.node, self._module.scope, "", "")

    def _block(self, node: ast.AST, scope: Scope, prefix: str, owner: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, FUNCTIONS):
                name = prefix + child.name
                inner = Scope(self._module.path, name, child, owner, scope)
                self._module.functions.setdefault(name, inner)
                for parameter in inner.parameters:
                    if isinstance(parameter.annotation, (ast.Name, ast.Attribute)):
                        inner.makers[parameter.arg] = parameter.annotation
                self._block(child, inner, f"{name}.", "")
            elif isinstance(child, ast.ClassDef):
                self._module.classes.setdefault(prefix + child.name, child)
                self._block(child, scope, f"{prefix}{child.name}.", prefix + child.name)
            else:
                self._bind(child, scope)
                self._block(child, scope, prefix, owner)

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                scope.imports.setdefault(name, (0, alias.name if alias.asname else name, ""))
                if not alias.asname and "." in alias.name:  # import a.b binds a, and reads a.b
                    scope.imports.setdefault(alias.name, (0, alias.name, ""))
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name == "*":
                    self._module.stars.append((node.level, node.module or ""))
                else:
                    scope.imports.setdefault(alias.asname or alias.name, (node.level, node.module or "", alias.name))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value, scope)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, node.value, scope)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.optional_vars is not None:
                    self._assign(item.optional_vars, item.context_expr, scope)

    def _assign(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Call) and target.elts:
            target = target.elts[0]  # engine, optimizer, ... = deepspeed.initialize(...)
        if isinstance(value, ast.IfExp):  # saver = Saver() if rank == 0 else None
            value = value.body if isinstance(value.body, ast.Call) else value.orelse
        if isinstance(target, ast.Name):
            if isinstance(value, (ast.Name, ast.Attribute)):
                if not (isinstance(value, ast.Name) and value.id == target.id):
                    scope.aliases.setdefault(target.id, value)
            elif isinstance(value, ast.Call):
                scope.makers.setdefault(target.id, value.func)
        elif (
            isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and target.value.id == "self"
            and isinstance(value, ast.Call)
        ):
            method = scope.method()
            if method is not None:
                self._module.attributes.setdefault(f"{method.owner}.{target.attr}", value.func)
