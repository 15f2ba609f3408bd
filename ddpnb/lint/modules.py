"""A project's modules, and what the names in them refer to."""

from __future__ import annotations

import ast
import posixpath
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddpnb.lint.scopes import Module, Reader, Scope
from ddpnb.source.branches import tree, trouble

_MOST_MODULES = 500
_DEEPEST = 12  # aliases of aliases


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


class Project:
    """The entries and the modules of their own project that they import, directly or not.

    ``sources`` maps paths to texts; it is asked for the paths at which an import may lie.
    """

    def __init__(self, sources: Mapping[str, str], entries: Sequence[str]) -> None:
        self._sources = sources
        self.modules: dict[str, Module] = {}
        self.problems: list[Problem] = []
        self._roots: list[str] = []
        self._own: set[str] = set()  # the folders of the entries: first on the path of a script
        self._found: dict[str, str | None] = {}
        self._methods: dict[str, list[Scope]] = {}
        self._resolved: dict[tuple[str, str, int], Ref | None] = {}
        for entry in entries:
            folder = posixpath.dirname(entry)
            self._own.add(folder)
            for _ in range(8):
                self._roots += [root for root in (folder, posixpath.join(folder, "src")) if root not in self._roots]
                if posixpath.dirname(folder) == folder:
                    break
                folder = posixpath.dirname(folder)
        waiting = list(entries)
        for path in waiting:  # grows
            if path in self.modules or len(self.modules) >= _MOST_MODULES:
                continue
            try:
                source = sources[path]
            except KeyError:
                continue
            parsed = tree(source)
            if parsed is None:
                line, text = trouble(source) or (0, "not readable")
                self.problems.append(Problem(path, line, text))
                continue
            module = Module(path, source, Scope(path, "", parsed), lines=source.splitlines())
            self.modules[path] = module
            try:
                Reader(module).read()
            except RecursionError:
                self.problems.append(Problem(path, 0, "nested too deeply"))
            waiting += [path for path in self._imported(module) if path not in self.modules]

    # -- files

    def _imported(self, module: Module) -> list[str]:
        wanted = list(module.stars)
        for scope in (module.scope, *module.functions.values()):
            for level, name, attribute in scope.imports.values():
                wanted += [(level, name), (level, f"{name}.{attribute}" if name else attribute)]
        paths: list[str] = []
        for level, name in wanted:
            parts = name.split(".")
            # A package's own __init__ runs before its modules.
            for depth in range(1, len(parts) + 1):
                path = self.locate(module.path, level, ".".join(parts[:depth]))
                if path is not None and path not in paths:
                    paths.append(path)
        return paths

    def locate(self, importer: str, level: int, name: str) -> str | None:
        """The file of the module ``name`` as ``importer`` would import it; None if it is not the project's."""
        if level:
            folder = posixpath.dirname(importer)
            for _ in range(level - 1):
                folder = posixpath.dirname(folder)
            return self._file(folder, name)
        if name in self._found:
            return self._found[name]
        first = name.partition(".")[0]
        path = None
        if first not in ("torch", "numpy", "__future__"):
            library = first in sys.stdlib_module_names
            roots = self._roots if not library else [root for root in self._roots if root in self._own]
            path = next((path for root in roots if (path := self._file(root, name)) is not None), None)
        self._found[name] = path
        return path

    def _file(self, folder: str, name: str) -> str | None:
        base = posixpath.join(folder, *name.split(".")) if name else folder
        for path in ((f"{base}.py",) if name else ()) + (posixpath.join(base, "__init__.py"),):
            if path in self._sources:
                return path
        return None

    # -- names

    def resolve(self, scope: Scope, expr: ast.expr, depth: int = 0) -> Ref | None:
        """What an expression refers to; None if unknown."""
        if depth > _DEEPEST:
            return None
        if depth:
            return self._resolve(scope, expr, depth)
        key = (*scope.key, id(expr))  # the tree keeps its nodes, so that ids are unique
        if key not in self._resolved:
            self._resolved[key] = self._resolve(scope, expr, 0)
        return self._resolved[key]

    def _resolve(self, scope: Scope, expr: ast.expr, depth: int) -> Ref | None:
        if isinstance(expr, ast.Name):
            return self._resolve_name(scope, expr.id, depth)
        if isinstance(expr, ast.Attribute):
            kept = self._kept(scope, expr, depth)
            if kept is not None:
                return kept
            base = self.resolve(scope, expr.value, depth + 1)
            return self._member(base, expr.attr, depth) if base is not None else self._likely(expr)
        if isinstance(expr, ast.Call):
            if isinstance(expr.func, ast.Name) and expr.func.id == "super" and scope.owner:
                return self._base(scope)
            return self._made(scope, expr.func, depth)
        return None

    def _resolve_name(self, scope: Scope, name: str, depth: int) -> Ref | None:
        module = self.modules[scope.path]
        for here in scope.outwards():
            if name in ("self", "cls") and here.owner:
                return Ref(here.path, here.owner, name == "self")
            inner = f"{here.name}.{name}" if here.name else name
            if inner in module.functions or inner in module.classes:
                return Ref(here.path, inner)
            if name in here.imports:
                return self._import(here.path, *here.imports[name], depth)
            if name in here.aliases:
                return self.resolve(here, here.aliases[name], depth + 1)
            if name in here.makers:
                return self._made(here, here.makers[name], depth)
            if any(name == parameter.arg for parameter in here.parameters):
                return None
        for level, origin in module.stars:
            path = self.locate(scope.path, level, origin)
            ref = self._of_module(path, name, depth) if path in self.modules else None
            if ref is not None:
                return ref
            if path is None and origin.startswith("torch.distributed"):
                return Ref("", f"{origin}.{name}")
        return None

    def _import(self, importer: str, level: int, name: str, attribute: str, depth: int) -> Ref | None:
        path = self.locate(importer, level, name)
        if attribute:
            ref = self._of_module(path, attribute, depth) if path in self.modules else None
            if ref is not None:
                return ref
            inner = self.locate(importer, level, f"{name}.{attribute}" if name else attribute)
            if inner in self.modules:
                return Ref(inner, "")
            return Ref("", f"{name}.{attribute}") if path is None else None
        return Ref(path, "") if path in self.modules else Ref("", name)

    def _of_module(self, path: str | None, name: str, depth: int) -> Ref | None:
        if path is None or depth > _DEEPEST:
            return None
        module = self.modules[path]
        ref = self._resolve_name(module.scope, name, depth + 1)
        if ref is None and posixpath.basename(path) == "__init__.py":
            inner = self._file(posixpath.dirname(path), name)
            return Ref(inner, "") if inner in self.modules else None
        return ref

    def _member(self, base: Ref, name: str, depth: int) -> Ref | None:
        if not base.path:
            dotted = f"{base.name}.{name}"
            path = None if base.instance else self.locate("", 0, dotted)
            return Ref(path, "") if path in self.modules else Ref("", dotted)
        if not base.name:
            return self._of_module(base.path, name, depth)
        return self._method(base, name, depth)

    def _method(self, owner: Ref, name: str, depth: int) -> Ref | None:
        module = self.modules[owner.path]
        if f"{owner.name}.{name}" in module.functions:
            return Ref(owner.path, f"{owner.name}.{name}")
        node = module.classes.get(owner.name)
        for base in node.bases if node is not None and depth <= _DEEPEST else ():
            resolved = self.resolve(module.scope, base, depth + 1)
            if resolved is not None and resolved.path and resolved.name:
                ref = self._method(resolved, name, depth + 1)
                if ref is not None:
                    return ref
            elif resolved is not None and not resolved.path:
                return Ref("", f"{resolved.name}.{name}")
        return None

    def _likely(self, expr: ast.Attribute) -> Ref | None:
        """The method of an object passed as an argument, by the name of its variable or a unique method name."""
        if not self._methods:
            for module in self.modules.values():
                for scope in module.functions.values():
                    if scope.owner:
                        self._methods.setdefault(scope.name.rpartition(".")[2], []).append(scope)
        having = self._methods.get(expr.attr, [])
        variable = getattr(expr.value, "attr", "") or getattr(expr.value, "id", "")
        plain = variable.replace("_", "").lower()
        named = [
            method for method in having if len(plain) > 3 and _means(plain, method.owner.rpartition(".")[2].lower())
        ]
        if len(named) == 1:
            return Ref(named[0].path, named[0].name)
        of_its_own = len(having) == 1 and "_" in expr.attr.strip("_") and expr.attr not in _COMMON
        return Ref(having[0].path, having[0].name) if of_its_own and variable else None

    def _base(self, scope: Scope) -> Ref | None:
        node = self.modules[scope.path].classes.get(scope.owner)
        for base in node.bases if node is not None else ():
            ref = self.resolve(self.modules[scope.path].scope, base)
            if ref is not None:
                return Ref(ref.path, ref.name, True)
        return None

    def _made(self, scope: Scope, maker: ast.expr, depth: int) -> Ref | None:
        ref = self.resolve(scope, maker, depth + 1)
        if ref is None:
            return None
        if not ref.path:
            return Ref("", f"{ref.name}()", True)
        return Ref(ref.path, ref.name, True) if ref.name in self.modules[ref.path].classes else None

    def _kept(self, scope: Scope, expr: ast.Attribute, depth: int) -> Ref | None:
        """What ``self.x`` holds, if the class says so: ``self.x = Maker(...)``."""
        if isinstance(expr.value, ast.Name) and expr.value.id == "self":
            method, module = scope.method(), self.modules[scope.path]
            maker = module.attributes.get(f"{method.owner}.{expr.attr}") if method is not None else None
            if maker is not None and method is not None:
                return self._made(module.functions.get(f"{method.owner}.__init__", method), maker, depth)
        return None

    def function(self, ref: Ref | None) -> Scope | None:
        """The function that a call of this runs: a class runs its ``__init__``."""
        if ref is None or not ref.path:
            return None
        module = self.modules[ref.path]
        if ref.name in module.functions:
            return module.functions[ref.name]
        if ref.name in module.classes:
            started = self._method(ref, "__call__" if ref.instance else "__init__", 0)
            return self.modules[started.path].functions.get(started.name) if started and started.path else None
        return None

    def scopes(self) -> list[Scope]:
        """Every module's own statements and every function, in the order of the files."""
        return [scope for module in self.modules.values() for scope in (module.scope, *module.functions.values())]


# Methods that objects of libraries have too.
_COMMON = frozenset({
    "state_dict", "load_state_dict", "zero_grad", "set_epoch", "add_scalar", "add_argument", "parse_args", "is_alive",
    "train_step", "training_step", "validation_step", "test_step", "configure_optimizers", "set_description",
    "from_pretrained", "save_pretrained", "get_model", "set_to_none", "no_sync", "on_epoch_end", "on_train_end",
})  # fmt: skip


def _means(variable: str, owner: str) -> bool:
    """Whether a variable is named after a class: ``checkpointer`` after Checkpointer, ``saver`` after ModelSaver."""
    return variable == owner or (len(variable) > 4 and (owner.endswith(variable) or owner.startswith(variable)))
