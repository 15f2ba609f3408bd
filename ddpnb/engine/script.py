"""Runs a script as ``torchrun`` would run it in a process of its own, and tells how it ended.

The process lives on afterwards, so what a process's exit does is done here: non-daemon threads are
joined, what the script registered with ``atexit`` is called, files are flushed, and what it changed
(arguments, path, directory, environment, streams, signal handlers) is put back.
"""

from __future__ import annotations

import ast
import asyncio
import atexit
import builtins
import faulthandler
import io
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType, TracebackType
from typing import Any

import torch

from ddpnb.engine.locals import describe_locals
from ddpnb.engine.release import Release
from ddpnb.engine.sites import is_own_file, is_user_file
from ddpnb.errors import CollectiveMismatch, Released


@dataclass
class Ended:
    """How the code ended: the JSON of ``model.recording.Ending`` and, for a function, its result."""

    ending: dict[str, Any]
    result: Any = None


def run(code: Callable[[], Any], release: Release) -> Ended:
    """Call ``code`` as the main program and say how it ended. Never raises."""
    pid = os.getpid()
    result, how, status, failure, left = None, "finished", 0, None, None
    try:
        with release.inside():
            result = code()
    except SystemExit as error:
        status = _status_of(error)
        how = "exited"
        left = error
    except BaseException as error:  # KeyboardInterrupt is the user's own here
        failure = release.told(error)
        how, status = "raised", 1
    if os.getpid() != pid:
        _leave_child(status, failure)
    ending: dict[str, Any] = {"how": how, "code": status, "at_ns": time.monotonic_ns()}
    if failure is not None:
        ending |= _describe(_first_cause(failure))
        print(ending["traceback"], end="", file=sys.stderr)
    elif left is not None and status:
        ending["frames"] = _frames(_skip_own(left.__traceback__))
        ending["message"] = left.code[:4000] if isinstance(left.code, str) else ""
    return Ended(ending, result)


def _status_of(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _leave_child(status: int, failure: BaseException | None) -> None:
    """A process that the script forked has come to its end: it must not go on as a rank."""
    if failure is not None:
        traceback.print_exception(failure)
    for stream in (sys.stdout, sys.stderr):
        _flush(stream)
    os._exit(status)


def _first_cause(error: BaseException) -> BaseException:
    """A fence stop that came while another exception was on its way out tells of that one."""
    while isinstance(error, CollectiveMismatch) and error.__context__ is not None:
        error = error.__context__
    return error


def _describe(error: BaseException) -> dict[str, Any]:
    """The exception with the user's frames; ours, which called the script, are left out."""
    trace = _skip_own(error.__traceback__)
    frames = _frames(trace)
    if isinstance(error, SyntaxError) and error.filename:
        frames.append({"file": error.filename, "line": error.lineno or 0, "function": "<module>", "user": True})
    told = traceback.TracebackException(type(error), error, trace)
    # The user's traceback is shown as the user's: our frames are left out.
    told.stack = traceback.StackSummary.from_list(f for f in told.stack if not is_own_file(f.filename))
    # Where the fence stopped a call, the diagnosis tells the rest; a release was asked for.
    if isinstance(error, CollectiveMismatch):
        text = f"ddpnb: fence: {error.what}\n"
    elif isinstance(error, Released):
        place = next((f" It stood at {f['file']}:{f['line']}." for f in reversed(frames) if f["user"]), "")
        text = f"ddpnb: {error.what}{place}\n"
    else:
        text = "".join(told.format())
    return {
        "exception": type(error).__name__,
        "message": str(error)[:4000],
        "frames": frames[-64:],
        "traceback": text if len(text) < 40_000 else text[:10_000] + "\n[...]\n" + text[-30_000:],
    }


def _frames(trace: TracebackType | None) -> list[dict[str, Any]]:
    found = []
    for frame, line in traceback.walk_tb(trace):
        path = frame.f_code.co_filename
        if is_own_file(path):
            continue
        entry: dict[str, Any] = {
            "file": path,
            "line": line,
            "function": frame.f_code.co_name,
            "user": is_user_file(path),
        }
        if entry["user"]:
            entry["locals"] = describe_locals(frame)
        found.append(entry)
    return found


_set_num_threads = torch.set_num_threads  # without the hook that tells of it: this is not the script's doing


def _skip_own(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not is_own_file(path) and not path.startswith("<frozen"):
            break
        trace = trace.tb_next
    return trace


def script(path: str, arguments: list[str]) -> Callable[[], None]:
    """The main program of ``path`` with these arguments, as ``python path arguments...``."""

    def main() -> None:
        full = os.path.abspath(path)
        sys.argv = [path, *arguments]
        sys.path[0] = os.path.dirname(full)
        module = ModuleType("__main__")
        module.__file__ = full  # absolute, as Python has it: spawned workers look for it
        module.__dict__["__builtins__"] = builtins
        module.__dict__["__cached__"] = None
        sys.modules["__main__"] = module
        with io.open_code(full) as file:
            program = compile(file.read(), full, "exec", dont_inherit=True)
        exec(program, module.__dict__)

    return main


def cell(path: str, namespace: dict[str, Any]) -> Callable[[], None]:
    """The lines of ``path`` in a namespace that lives on; a last expression is shown as at a prompt."""

    def main() -> None:
        with io.open_code(path) as file:
            tree = ast.parse(file.read(), path)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, path, "exec", dont_inherit=True), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), path, "eval", dont_inherit=True), namespace)  # noqa: S307 (the user's own)
            if value is not None:
                print(repr(value))

    return main


@contextmanager
def like_a_prompt(log: str, environment: Mapping[str, str | None]) -> Iterator[None]:
    """Inside, standard output and error go to ``log``, and an interrupt is the user's; all else is left as it is.

    Args:
        log: as in ``like_a_process``.
        environment: variables for as long as this lasts; None takes one away.
    """
    handler = signal.getsignal(signal.SIGINT)
    before = {name: os.environ.get(name) for name in environment}
    with _output_to(log), _no_event_loop():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        set_variables(environment)
        try:
            yield
        finally:
            set_variables(before)
            signal.signal(signal.SIGINT, handler)


def set_variables(variables: Mapping[str, str | None]) -> None:
    """Set variables of the environment; None takes one away."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def like_a_process(log: str, directory: str, environment: dict[str, str | None]) -> Iterator[None]:
    """Inside, the process looks like one that was just started to run a script.

    Args:
        log: file that takes standard output and error, whoever writes them (children, C++).
        directory: working directory.
        environment: variables on top of the engine's own; None takes one away.
    """
    with ExitStack() as stack:
        stack.enter_context(_output_to(log))
        stack.enter_context(_restored())
        stack.enter_context(_no_event_loop())
        os.chdir(directory)
        set_variables(environment)
        _forget_user_modules()
        _fresh_randomness()
        if environment.get("OMP_NUM_THREADS"):  # torch reads it when it is loaded: long ago
            threads = torch.get_num_threads()
            stack.callback(_set_num_threads, threads)
            _set_num_threads(int(environment["OMP_NUM_THREADS"] or threads))
        with _own_atexit():
            yield


@contextmanager
def _output_to(log: str) -> Iterator[None]:
    """Standard output and error of the process, at the level of file descriptors, go to ``log``."""
    before = sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__
    saved = [os.dup(1), os.dup(2)]
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    out = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)
    err = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)
    sys.stdout = sys.__stdout__ = out  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = err  # type: ignore[misc]
    faulthandler.enable(file=2)
    try:
        yield
    finally:
        for stream in {id(s): s for s in (sys.stdout, sys.stderr, out, err)}.values():
            _flush(stream)
        sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__ = before  # type: ignore[misc]
        for target, source in zip((1, 2), saved, strict=True):
            os.dup2(source, target)
            os.close(source)


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except (OSError, ValueError, AttributeError):
        pass  # the script closed it


@contextmanager
def _restored() -> Iterator[None]:
    argv, path, directory = list(sys.argv), list(sys.path), os.getcwd()
    environment, hook = dict(os.environ), sys.excepthook
    main_module = sys.modules.get("__main__")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # A plain process has these; the engine's own would swallow Ctrl-C and stop the engine.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if not path or path[0] != "":
        sys.path.insert(0, "")
    try:
        yield
    finally:
        sys.argv, sys.path[:], sys.excepthook = argv, path, hook
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update(environment)
        if main_module is not None:
            sys.modules["__main__"] = main_module
        if os.path.isdir(directory):
            os.chdir(directory)


@contextmanager
def _no_event_loop() -> Iterator[None]:
    """The engine's kernel runs in an event loop on this thread; a script may want one of its own."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        if running is not None:
            asyncio.set_event_loop(running)
        asyncio._set_running_loop(running)


@contextmanager
def _own_atexit() -> Iterator[None]:
    """What the script registers with atexit runs when the script ends, not when the engine does."""
    registered: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []
    register, unregister = atexit.register, atexit.unregister

    def own_register(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        # Libraries that are imported now and stay loaded belong to the process, not to the script.
        caller = sys._getframe(1).f_code.co_filename
        if is_user_file(caller):
            registered.append((function, args, kwargs))
        else:
            register(function, *args, **kwargs)
        return function

    def own_unregister(function: Callable[..., Any], /) -> None:
        registered[:] = [entry for entry in registered if entry[0] != function]
        unregister(function)

    before = set(threading.enumerate())
    atexit.register, atexit.unregister = own_register, own_unregister  # type: ignore[assignment]
    try:
        yield
        for thread in set(threading.enumerate()) - before:
            if not thread.daemon and thread.is_alive() and thread is not threading.current_thread():
                thread.join()
        while registered:
            function, args, kwargs = registered.pop()
            try:
                function(*args, **kwargs)
            except BaseException:
                traceback.print_exc()
    finally:
        atexit.register, atexit.unregister = register, unregister


def _fresh_randomness() -> None:
    """Random numbers as at the start of a process: each rank's own, until the script seeds them."""
    torch.seed()
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _forget_user_modules() -> None:
    """Modules of the user's own project are imported anew: they may have been edited since."""
    # A package without an __init__.py has no file, and asks its parent for its path: all are looked at first.
    paths = {
        name: getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
        for name, module in list(sys.modules.items())
    }
    for name, path in paths.items():
        if name != "__main__" and isinstance(path, str) and is_user_file(path):
            del sys.modules[name]
