"""Modules that this process has loaded and a plain ``python script.py`` has not: hidden while a script runs.

ipykernel and what it needs load ``comm``, ``decorator``, ``psutil`` and many more before a script begins. A script
with a ``comm.py`` beside it must get its own, as it does in a process of its own; without one it gets the module
that is loaded already. Our own threads answer the control channel meanwhile, and always get the loaded modules.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from ddpnb.recorder.stacks.user_frames import is_user_file

#: never hidden: the recorder and torch exist once per process, and Python loads the rest before any script
_FIXED = frozenset({"torch", "ddpnb", "encodings", "importlib", "site", "sitecustomize", "usercustomize", "__main__"})
_OURS = frozenset({"xxhash"})  # loaded by the recorder, before the rest of the stack


_before_stack: frozenset[str] | None = None  # noted by a process that loads the stack before it forks ranks


def stack_begins() -> None:
    """What is loaded from now on is ours and not the user's, in ranks that this process forks too."""
    global _before_stack
    _before_stack = _packages()


class HiddenModules:
    """What this process has loaded for itself. Made once torch and the recorder are loaded, and nothing else.

    In a rank that was forked, ``stack_begins`` was called at that moment.
    """

    def __init__(self) -> None:
        self._before = _packages() if _before_stack is None else _before_stack
        self._stack: frozenset[str] = _OURS
        self._last: _View | None = None  # whose modules are back

    def note_stack(self) -> None:
        """Everything that was loaded since, but the standard library, is ours and not the user's."""
        self._stack = _OURS | (_packages() - self._before - sys.stdlib_module_names)

    @contextmanager
    def hidden(self, keep: Collection[str] = ()) -> Iterator[None]:
        """Inside, what is imported by the user's threads is what a plain process with this ``sys.path`` would import.

        Args:
            keep: packages that stay as they are.
        """
        loaded = _packages() - _FIXED - set(keep)
        shadowed = {name for name in _provided(sys.path) & loaded if _user_spec(name) is not None}
        view = _View((self._stack & loaded) | shadowed, shadowed)
        try:
            view.begin()
            if self._last is not None:
                self._last.leave()
            yield
        finally:
            view.end()
            self._last = view


class _View:
    """The modules that are hidden now. It is a finder on ``sys.meta_path``, and the loader of what it finds."""

    def __init__(self, packages: Collection[str], shadowed: set[str]) -> None:
        self._shadowed = shadowed  # packages for which the user's path has a module of that name
        self._modules = {
            name: module
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] in packages and _is_complete(module)
        }
        self._threads = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        self._import = builtins.__import__
        self._active = self._serves_own_threads = False

    def begin(self) -> None:
        self._active = True
        importlib.invalidate_caches()
        # Before the modules go, and until they are back: a thread of ours that imports one meanwhile must not load it again.
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]
        if self._shadowed:
            self._serve_own_threads()
        for name in self._modules:
            sys.modules.pop(name, None)

    def end(self) -> None:
        others = self._shadowed | _in_the_way()
        for name in [name for name in list(sys.modules) if name.partition(".")[0] in others]:
            del sys.modules[name]
        sys.modules.update(self._modules)
        self._active = False
        if builtins.__import__ == self._import_for:  # else another wrapper holds it, and it only passes everything on
            builtins.__import__ = self._import

    def leave(self) -> None:
        """Cease to be a finder. Not at the end: a thread may have missed a module just before it came back."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)  # type: ignore[arg-type]

    # -- for the user's threads: a finder and loader

    def find_spec(self, name: str, _path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """The hidden module, unless the user's path has one of this name by now. Once it is back, it alone."""
        module = self._modules.get(name)
        top = name.partition(".")[0]
        if not self._active:
            return self._spec(name, module) if target is None and sys.modules.get(name) is module else None
        if module is None or top in self._shadowed:
            return None
        if name == top and (spec := _user_spec(name, module)) is not None:
            self._shadowed.add(name)
            self._serve_own_threads()
            return spec
        own = self._modules.get(top)
        return None if name != top and sys.modules.get(top, own) is not own else self._spec(name, module)

    def _spec(self, name: str, module: ModuleType | None) -> ModuleSpec | None:
        if module is None:
            return None
        places = getattr(module, "__path__", None)
        spec = ModuleSpec(name, self, origin=getattr(module, "__file__", None), is_package=places is not None)  # type: ignore[arg-type]
        if places is not None:
            spec.submodule_search_locations = list(places)
        spec.loader_state = module.__spec__
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """It was executed before; its submodules come back with it."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state
        inside = f"{module.__name__.partition('.')[0]}."
        for name, other in self._modules.items():
            if name.startswith(inside):
                sys.modules.setdefault(name, other)

    # -- for our own threads, where the user's path has a module of the same name

    def _serve_own_threads(self) -> None:
        if not self._serves_own_threads:  # once: below a wrapper of the script's it serves on
            self._serves_own_threads = True
            self._import = builtins.__import__
            builtins.__import__ = self._import_for

    def _import_for(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,  # noqa: A002 (as Python calls them)
        locals: Mapping[str, Any] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if self._active and (level or name.partition(".")[0] in self._shadowed) and self._is_ours(globals):
            package = (globals or {}).get("__package__") or ""
            full = importlib.util.resolve_name("." * level + name, package) if level else name
            top = full.partition(".")[0]
            if top in self._shadowed:
                return self._import_own(full, fromlist) if fromlist or level else self._top_of(full)
        return self._import(name, globals, locals, fromlist or (), level)

    def _is_ours(self, caller: Mapping[str, Any] | None) -> bool:
        if threading.get_ident() in self._threads:
            return True
        name = str((caller or {}).get("__name__", ""))
        module = self._modules.get(name)
        return name.startswith("ddpnb.") or (module is not None and vars(module) is caller)

    def _top_of(self, name: str) -> ModuleType:
        self._load(name)
        return self._modules[name.partition(".")[0]]

    def _import_own(self, name: str, attributes: Sequence[str] | None) -> ModuleType:
        module = self._load(name)
        for attribute in attributes or ():
            if attribute != "*" and not hasattr(module, attribute) and hasattr(module, "__path__"):
                try:
                    self._load(f"{name}.{attribute}")
                except ModuleNotFoundError:
                    pass  # Python itself says that the name cannot be imported
        return module

    def _load(self, name: str) -> ModuleType:
        """The loaded module of this name, or a part of a loaded package that nobody needed so far."""
        if name in self._modules:
            return self._modules[name]
        package, _, part = name.rpartition(".")
        parent = self._load(package) if package else None
        spec = PathFinder.find_spec(name, getattr(parent, "__path__", ())) if parent is not None else None
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        module = self._modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del self._modules[name]
            raise
        setattr(parent, part, module)
        return module


def _packages() -> frozenset[str]:
    """The top-level names of all loaded modules."""
    return frozenset(name.partition(".")[0] for name in list(sys.modules))


def _is_complete(module: ModuleType | None) -> bool:
    """Whether it can be taken away and put back: it came from a file, and no thread is importing it."""
    spec = getattr(module, "__spec__", None)
    if getattr(spec, "_initializing", False):
        return False
    return spec is not None or isinstance(getattr(module, "__file__", None), str)


def _provided(path: Sequence[str]) -> set[str]:
    """The names of the modules and packages in the folders of this path that are the user's."""
    names: set[str] = set()
    for folder in path:
        if _is_users(folder):
            try:
                names.update(entry.partition(".")[0] for entry in os.listdir(folder or "."))
            except OSError:
                continue  # a zip file, or a folder that is not there
    return names


def _in_the_way() -> set[str]:
    """The user's packages that are loaded and named like an installed one, which this process may yet need."""
    installed = [folder for folder in sys.path if not _is_users(folder)]
    loaded = {name: getattr(sys.modules.get(name), "__file__", None) for name in _packages() - _FIXED}
    own = [name for name, file in loaded.items() if isinstance(file, str) and is_user_file(file)]
    return {name for name in own if _find(name, installed) is not None}


def _is_users(folder: object) -> bool:
    """Whether this entry of an import path is a folder of the user's; Python skips what is no text, as this does."""
    return isinstance(folder, str) and is_user_file(os.path.join(os.path.abspath(folder), ""))


def _find(name: str, path: Sequence[str] | None = None) -> ModuleSpec | None:
    try:
        return PathFinder.find_spec(name, path)
    except Exception:  # an entry that a hook of the user cannot read
        return None


def _user_spec(name: str, loaded: ModuleType | None = None) -> ModuleSpec | None:
    """What Python would load under this name, if that is the user's and not what is loaded."""
    if BuiltinImporter.find_spec(name) is not None or FrozenImporter.find_spec(name) is not None:
        return None
    spec = _find(name)
    if spec is None or spec.loader is None or not spec.origin or not is_user_file(os.path.abspath(spec.origin)):
        return None
    file = getattr(loaded or sys.modules.get(name), "__file__", None)
    return None if isinstance(file, str) and os.path.realpath(file) == os.path.realpath(spec.origin) else spec
