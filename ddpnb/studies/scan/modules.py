"""A project's files: those that its scripts import, with their functions."""

from __future__ import annotations

import ast
import posixpath
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ddpnb.recording.source.branches import FUNCTIONS, tree, trouble
from ddpnb.recording.source.names import Names

_MOST_MODULES = 500
_HIGHEST = 12  # folders above an import
_DEEPEST_TREE = 150  # levels, all of which a visit has on its stack


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that could not be scanned."""

    file: str
    line: int
    text: str


@dataclass(eq=False, frozen=True, slots=True)
class Module:
    """A file of the project."""

    path: str
    source: str
    node: ast.Module
    names: Names

    def scopes(self) -> Iterator[Scope]:
        """The module's own statements, and each function."""
        yield from (Scope(self, node) for node in ast.walk(self.node) if isinstance(node, (ast.Module, *FUNCTIONS)))


@dataclass(eq=False, frozen=True, slots=True)
class Scope:
    """A module or a function: its statements."""

    module: Module
    node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef

    @property
    def name(self) -> str:
        return getattr(self.node, "name", "<module>")

    def nodes(self) -> Iterator[ast.AST]:
        """What it holds, in the order of the source, without the functions and classes within it."""
        waiting: list[ast.AST] = list(reversed(self.node.body))
        while waiting:
            node = waiting.pop()
            if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                yield node
                waiting += reversed(list(ast.iter_child_nodes(node)))


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
        names = Names(parsed, lambda level, name: level > 0 or self._locate(path, 0, name) is not None)
        self.modules[path] = Module(path, source, parsed, names)
        imported: list[str | None] = []
        for level, name, attribute in names.imports:
            parts = [*filter(None, name.split(".")), attribute]  # a package's own __init__ runs before its modules
            imported += [self._locate(path, level, ".".join(parts[:n])) for n in range(not level, len(parts) + 1)]
        return [one for one in dict.fromkeys(imported) if one is not None]

    def _locate(self, importer: str, level: int, name: str) -> str | None:
        """The file of the module ``name`` as ``importer`` would import it; None if it is not the project's."""
        if level:
            folder = posixpath.dirname(importer)
            for _ in range(min(level - 1, _HIGHEST)):
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
