"""A project's modules: their functions and classes, and what the names in them refer to."""

from __future__ import annotations

import ast
import posixpath
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ddpnb.recording.source.branches import FUNCTIONS, tree, trouble
from ddpnb.recording.source.expressions import dotted

_MOST_MODULES = 500
_DEEPEST = 12  # aliases of aliases
_DEEPEST_TREE = 150  # levels, all of which a visit has on its stack

Import = tuple[int, str, str]  # the leading dots, the module, and the name taken from it


@dataclass(frozen=True, slots=True)
class Ref:
    """What a name stands for: ``name`` in the project's file ``path``; without a path, something outside of it.

    An empty name is the module itself. ``instance`` is an object of the class rather than the class.
    """

    path: str
    name: str
    instance: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that could not be scanned."""

    file: str
    line: int
    text: str


@dataclass(eq=False, slots=True)
class Scope:
    """A module or a function: its statements, and what it binds names to."""

    path: str
    name: str  # "Trainer.fit", "main.inner"; "" for a module
    node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
    owner: str = ""  # the class of a method
    outer: Scope | None = None
    names: dict[str, Import | ast.expr] = field(default_factory=dict[str, Import | ast.expr])

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

    def nodes(self) -> Iterator[ast.AST]:
        """What it holds, in the order of the source, without the functions and classes within it."""
        waiting: list[ast.AST] = list(reversed(self.node.body))
        while waiting:
            node = waiting.pop()
            if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                yield node
                waiting += reversed(list(ast.iter_child_nodes(node)))


@dataclass(eq=False, slots=True)
class Module:
    path: str
    source: str
    scope: Scope
    functions: dict[str, Scope] = field(default_factory=dict[str, Scope])
    classes: dict[str, ast.ClassDef] = field(default_factory=dict[str, ast.ClassDef])
    stars: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    attributes: dict[str, tuple[Scope, ast.expr]] = field(default_factory=dict[str, tuple[Scope, ast.expr]])

    def read(self, node: ast.AST, scope: Scope, prefix: str = "", owner: str = "") -> None:
        """Enter the functions, classes and names within a node."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, FUNCTIONS):
                inner = Scope(self.path, prefix + child.name, child, owner, scope)
                self.functions.setdefault(inner.name, inner)
                for parameter in inner.parameters:
                    if isinstance(parameter.annotation, (ast.Name, ast.Attribute)):
                        inner.names[parameter.arg] = ast.Call(parameter.annotation, [], [])
                self.read(child, inner, f"{inner.name}.")
            elif isinstance(child, ast.ClassDef):
                self.classes.setdefault(prefix + child.name, child)
                self.read(child, scope, f"{prefix}{child.name}.", prefix + child.name)
            else:
                self._bind(child, scope)
                self.read(child, scope, prefix, owner)

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                scope.names.setdefault(name, (0, alias.name if alias.asname else name, ""))
                scope.names.setdefault(alias.name, (0, alias.name, ""))  # import a.b binds a, and reads a.b
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name == "*":
                    self.stars.append((node.level, node.module or ""))
                else:
                    scope.names.setdefault(alias.asname or alias.name, (node.level, node.module or "", alias.name))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value, scope)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, node.value, scope)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._assign(node.optional_vars, node.context_expr, scope)

    def _assign(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Call) and target.elts:
            target = target.elts[0]  # engine, optimizer, ... = deepspeed.initialize(...)
        if isinstance(value, ast.IfExp):  # saver = Saver() if rank == 0 else None
            value = value.body if isinstance(value.body, ast.Call) else value.orelse
        if isinstance(target, ast.Name) and isinstance(value, (ast.Name, ast.Attribute, ast.Call)):
            if not (isinstance(value, ast.Name) and value.id == target.id):
                scope.names.setdefault(target.id, value)
        elif isinstance(target, ast.Attribute) and isinstance(value, ast.Call) and dotted(target.value) == "self":
            method = scope.method() or scope
            self.attributes.setdefault(f"{method.owner}.{target.attr}", (scope, value))


class Project:
    """The entries and the modules of their own project that they import, directly or not.

    ``sources`` maps paths to texts; it is asked for the paths at which an import may lie.
    """

    def __init__(self, sources: Mapping[str, str], entries: Sequence[str]) -> None:
        self._sources = sources
        self.modules: dict[str, Module] = {}
        self.problems: list[Problem] = []
        self._own = {posixpath.dirname(entry) for entry in entries}  # first on the path of a script
        self._roots = list(dict.fromkeys(root for entry in entries for root in _roots(entry)))
        self._located: dict[str, str | None] = {}
        self._resolved: dict[tuple[str, str, int], Ref | None] = {}
        waiting = list(entries)
        for path in waiting:  # grows
            if path not in self.modules and len(self.modules) < _MOST_MODULES:
                waiting += self._read(path)

    def _read(self, path: str) -> list[str]:
        """Read a file; returns the files that it imports."""
        try:
            source = self._sources[path]
        except KeyError:
            return []
        parsed = tree(source)
        if parsed is None or _too_deep(parsed):
            self.problems.append(Problem(path, *(trouble(source) or (0, "nested too deeply"))))
            return []
        module = self.modules[path] = Module(path, source, Scope(path, "", parsed))
        module.read(parsed, module.scope)
        return self._imported(module)

    def scopes(self) -> list[Scope]:
        """Every module's own statements and every function, in the order of the files."""
        return [scope for module in self.modules.values() for scope in (module.scope, *module.functions.values())]

    # -- files

    def _imported(self, module: Module) -> list[str]:
        wanted = list(module.stars)
        for scope in (module.scope, *module.functions.values()):
            for bound in scope.names.values():
                if isinstance(bound, tuple):
                    level, name, attribute = bound
                    wanted += [(level, name), (level, f"{name}.{attribute}" if name else attribute)]
        paths: list[str | None] = []
        for level, name in wanted:
            parts = name.split(".")  # a package's own __init__ runs before its modules
            paths += [self.locate(module.path, level, ".".join(parts[:n])) for n in range(1, len(parts) + 1)]
        return [path for path in dict.fromkeys(paths) if path is not None]

    def locate(self, importer: str, level: int, name: str) -> str | None:
        """The file of the module ``name`` as ``importer`` would import it; None if it is not the project's."""
        if level:
            folder = posixpath.dirname(importer)
            for _ in range(min(level - 1, _DEEPEST)):
                folder = posixpath.dirname(folder)
            return self._file(folder, name)
        if name not in self._located:
            first = name.partition(".")[0]
            library = first in sys.stdlib_module_names
            roots = [root for root in self._roots if root in self._own or not library]
            files = (self._file(root, name) for root in roots if first not in ("torch", "numpy", "__future__"))
            self._located[name] = next(filter(None, files), None)
        return self._located[name]

    def _file(self, folder: str, name: str) -> str | None:
        base = posixpath.join(folder, *name.split(".")) if name else folder
        paths = ((f"{base}.py",) if name else ()) + (posixpath.join(base, "__init__.py"),)
        return next((path for path in paths if path in self._sources), None)

    # -- names

    def resolve(self, scope: Scope, expr: ast.expr, depth: int = 0) -> Ref | None:
        """What an expression refers to; None if unknown."""
        if depth:
            return self._resolve(scope, expr, depth) if depth <= _DEEPEST else None
        key = (*scope.key, id(expr))  # the tree keeps its nodes, so that ids are unique
        if key not in self._resolved:
            self._resolved[key] = self._resolve(scope, expr, 0)
        return self._resolved[key]

    def _resolve(self, scope: Scope, expr: ast.expr, depth: int) -> Ref | None:
        if isinstance(expr, ast.Name):
            return self._resolve_name(scope, expr.id, depth)
        if isinstance(expr, ast.Attribute):
            method = scope.method() if isinstance(expr.value, ast.Name) and expr.value.id == "self" else None
            kept = self.modules[scope.path].attributes.get(f"{method.owner}.{expr.attr}") if method else None
            ref = self.resolve(*kept, depth + 1) if kept is not None else None  # self.x = Maker(...)
            if ref is not None:
                return ref
            base = self.resolve(scope, expr.value, depth + 1)
            return self._member(base, expr.attr, depth) if base is not None else None
        if isinstance(expr, ast.Call):
            if isinstance(expr.func, ast.Name) and expr.func.id == "super" and scope.owner:
                return next((Ref(base.path, base.name, True) for base in self._bases(scope.path, scope.owner)), None)
            made = self.resolve(scope, expr.func, depth + 1)
            if made is None or not made.path:
                return made and Ref("", f"{made.name}()", True)
            return Ref(made.path, made.name, True) if made.name in self.modules[made.path].classes else None
        return None

    def _resolve_name(self, scope: Scope, name: str, depth: int) -> Ref | None:
        module = self.modules[scope.path]
        for here in scope.outwards():
            if name in ("self", "cls") and here.owner:
                return Ref(here.path, here.owner, name == "self")
            inner = f"{here.name}.{name}" if here.name else name
            if inner in module.functions or inner in module.classes:
                return Ref(here.path, inner)
            bound = here.names.get(name)
            if bound is not None:
                ours = isinstance(bound, tuple)
                return self._import(here.path, *bound, depth) if ours else self.resolve(here, bound, depth + 1)
            if any(name == parameter.arg for parameter in here.parameters):
                return None
        for level, origin in module.stars:
            path = self.locate(scope.path, level, origin)
            ref = self._of_module(path, name, depth) if path is not None else None
            if ref is not None:
                return ref
            if path is None and origin.startswith("torch.distributed"):
                return Ref("", f"{origin}.{name}")
        return None

    def _import(self, importer: str, level: int, name: str, attribute: str, depth: int) -> Ref | None:
        path = self.locate(importer, level, name)
        if not attribute:
            return Ref(path, "") if path in self.modules else Ref("", name)
        ref = self._of_module(path, attribute, depth)
        if ref is not None:
            return ref
        inner = self.locate(importer, level, f"{name}.{attribute}" if name else attribute)
        if inner in self.modules:
            return Ref(inner, "")
        return Ref("", f"{name}.{attribute}") if path is None else None

    def _of_module(self, path: str | None, name: str, depth: int) -> Ref | None:
        if path not in self.modules or depth > _DEEPEST:
            return None
        ref = self._resolve_name(self.modules[path].scope, name, depth + 1)
        if ref is None and posixpath.basename(path) == "__init__.py":
            inner = self._file(posixpath.dirname(path), name)
            return Ref(inner, "") if inner in self.modules else None
        return ref

    def _member(self, base: Ref, name: str, depth: int) -> Ref | None:
        if not base.path:
            path = None if base.instance else self.locate("", 0, f"{base.name}.{name}")
            return Ref(path, "") if path in self.modules else Ref("", f"{base.name}.{name}")
        return self._method(base, name, depth) if base.name else self._of_module(base.path, name, depth)

    def _method(self, owner: Ref, name: str, depth: int) -> Ref | None:
        if f"{owner.name}.{name}" in self.modules[owner.path].functions:
            return Ref(owner.path, f"{owner.name}.{name}")
        for base in self._bases(owner.path, owner.name, depth + 1) if depth <= _DEEPEST else ():
            if not base.path:
                return Ref("", f"{base.name}.{name}")
            ref = self._method(base, name, depth + 1) if base.name else None
            if ref is not None:
                return ref
        return None

    def _bases(self, path: str, owner: str, depth: int = 1) -> Iterator[Ref]:
        module = self.modules[path]
        for base in module.classes[owner].bases if owner in module.classes else ():
            ref = self.resolve(module.scope, base, depth)
            if ref is not None:
                yield ref

    def function(self, ref: Ref | None) -> Scope | None:
        """The function that a call of this runs: a class runs its ``__init__``."""
        if ref is None or not ref.path:
            return None
        module = self.modules[ref.path]
        if ref.name in module.classes:
            ref = self._method(ref, "__call__" if ref.instance else "__init__", 0)
        return self.modules[ref.path].functions.get(ref.name) if ref is not None and ref.path else None


def _roots(entry: str) -> Iterator[str]:
    """The folders in which a script's imports may lie: its own, and those above it."""
    folder = posixpath.dirname(entry)
    for _ in range(8):
        yield from (folder, posixpath.join(folder, "src"))
        folder = posixpath.dirname(folder)


def _too_deep(parsed: ast.AST) -> bool:
    level = [parsed]
    for _ in range(_DEEPEST_TREE):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return bool(level)
