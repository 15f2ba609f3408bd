"""In each rank: once ddpnb's script runner is imported, trace the scripts that it runs. See ``benchmarks.executed``."""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import threading
import time
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from typing import Any

_RUNNER = "ddpnb.recorder.process.script"


class _Finder(MetaPathFinder):
    """Wraps ``script()`` of the runner when the runner is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _RUNNER:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                _wrap(module)

            spec.loader.exec_module = exec_module
        return spec


def _wrap(module: Any) -> None:
    script = module.script

    def traced(path: str, arguments: list[str]) -> Any:
        main = script(path, arguments)

        def run() -> None:
            trace = _tracer()
            threading.settrace(trace)
            imports = builtins.__import__, importlib.import_module
            builtins.__import__, importlib.import_module = map(_untraced, imports)
            sys.settrace(trace)
            try:
                main()
            finally:
                sys.settrace(None)
                builtins.__import__, importlib.import_module = imports
                threading.settrace(None)  # type: ignore[arg-type]

        return run

    module.script = traced


_LARGE = ("torch", "numpy", "sympy")


def _untraced(load: Any) -> Any:
    """An import of a large library takes several times as long while it is traced."""

    def untraced(name: str, *rest: Any, **more: Any) -> Any:
        scope = rest[0] if rest and isinstance(rest[0], dict) else {}
        if not str(name or scope.get("__package__", "")).startswith(_LARGE) or name in sys.modules:
            return load(name, *rest, **more)
        trace = sys.gettrace()
        sys.settrace(None)
        try:
            return load(name, *rest, **more)
        finally:
            sys.settrace(trace)

    return untraced


def _tracer() -> Any:
    from ddpnb.recorder.stacks.user_frames import is_own_file, is_user_file

    folder, rank = os.environ["DDPNB_EXECUTED_LINES"], os.environ.get("RANK", "0")
    name = os.path.join(folder, f"{rank}-{os.getpid()}-{time.monotonic_ns()}.lines")
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.set_inheritable(file, False)
    seen: set[tuple[str, int]] = set()
    mine = __file__

    def each_line(frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            place = (frame.f_code.co_filename, frame.f_lineno)
            if place not in seen:
                seen.add(place)
                os.write(file, f"{place[1]} {os.path.abspath(place[0])}\n".encode())
        return each_line

    def each_call(frame: Any, _: str, __: Any) -> Any:
        path = frame.f_code.co_filename
        return each_line if path != mine and is_user_file(path) and not is_own_file(path) else None

    return each_call


if os.environ.get("DDPNB_EXECUTED_LINES"):
    sys.meta_path.insert(0, _Finder())
