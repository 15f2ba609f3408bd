"""What is around a script or a cell while it runs: as in a process of its own, or as at a prompt.

The process lives on afterwards, so what a process's exit does is done here: non-daemon threads are
joined, what the script registered with ``atexit`` is called, files are flushed, and what it changed
(arguments, path, directory, environment, streams, timers, signal handlers, builtins, modules of the standard library) is put
back.
"""

from __future__ import annotations

import asyncio
import atexit
import builtins
import faulthandler
import os
import random
import signal
import stat
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch

from ddpnb.recorder.stacks.user_frames import is_user_file
from ddpnb.recording.descriptors import Descriptor, open_missing, out_of_the_way
from ddpnb.recording.files import private
from ddpnb.recording.protocol import RELEASE_SIGNAL as RELEASE

_set_num_threads = torch.set_num_threads  # without the hook that records it: the script did not do this
_WARNINGS = list(warnings.filters)  # before IPython adds its own
_BUILT_IN = dict(builtins.__dict__)  # as Python has them: no script has run yet
_MISSING = object()
# Signals whose handlers stay as they are: two cannot have any, one is put away by the release, one is its own.
_OF_OTHERS = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, RELEASE}


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
def like_a_process(
    log: str,
    directory: str,
    environment: dict[str, str | None],
    path: Sequence[str],
    modules: AbstractContextManager[None],
    begin_modules: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Inside, the process looks like one that was just started to run a script.

    Args:
        log: file that takes standard output and error, also those of children and C++.
        directory: working directory.
        environment: variables on top of the engine's own; None takes one away.
        path: folders that come first on the import path.
        modules: hides what a plain process has not loaded; entered when the import path is set.
        begin_modules: forgets modules of the user that are to be imported again; called before that.
    """
    with ExitStack() as stack:
        stack.enter_context(_output_to(log))
        stack.enter_context(_restored())
        stack.enter_context(warnings.catch_warnings())
        warnings.filters[:] = _WARNINGS  # type: ignore[index]
        stack.enter_context(_no_event_loop())
        os.chdir(directory)
        set_variables(environment)
        sys.path[:] = [*path, *(folder for folder in sys.path if folder not in ("", *path))]
        begin_modules()
        stack.enter_context(modules)
        _fresh_randomness()
        if environment.get("OMP_NUM_THREADS"):  # torch reads it when it is loaded: long ago
            threads = torch.get_num_threads()
            stack.callback(_set_num_threads, threads)
            _set_num_threads(int(environment["OMP_NUM_THREADS"] or threads))
        # Threads and atexit callbacks of the script find its builtins; what puts the process back finds Python's.
        stack.callback(restore_builtins, dict(builtins.__dict__), keep=("__import__",))
        with _own_atexit():
            yield


@contextmanager
def _output_to(log: str) -> Iterator[None]:
    """Standard output and error of the process, at the level of file descriptors, go to ``log``."""
    before = sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__
    _restore_standard_files(sockets=True)
    fd = private(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
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
            flush(stream)
        sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__ = before  # type: ignore[misc]
        _restore_standard_files(sockets=False)


_standard: list[Descriptor] = []  # copies of the descriptors 0, 1 and 2 as they were before the first run


def _restore_standard_files(*, sockets: bool) -> None:
    """Let the descriptors 0, 1 and 2 be what they were before the first run.

    Args:
        sockets: also where one of them is a socket by now, or the like. A program that closes them gives their numbers
            to what it opens next, such as a connection of its own, which its threads may still use when it ends; but
            the next script needs its output.
    """
    if not _standard:
        open_missing()
        _standard.extend(Descriptor(out_of_the_way(os.dup(number))) for number in (0, 1, 2))
    for number, copy in enumerate(_standard):
        try:
            if sockets or not _is_in_use(number):
                os.dup2(copy.checked(), number)
        except OSError:
            pass  # the script closed the copy
    open_missing()


def _is_in_use(number: int) -> bool:
    """Whether this descriptor is a socket or the like, and not the one of our copy."""
    try:
        now, before = os.fstat(number), os.fstat(_standard[number].checked())
    except OSError:
        return False
    known = stat.S_ISREG(now.st_mode) or stat.S_ISCHR(now.st_mode) or stat.S_ISFIFO(now.st_mode)
    return not known and not os.path.samestat(now, before)


def flush(stream: Any) -> None:
    """Write what a stream holds, if it still can."""
    try:
        stream.flush()
    except (OSError, ValueError, AttributeError):
        pass  # the script closed it


@contextmanager
def _restored() -> Iterator[None]:
    argv, original, path, directory = list(sys.argv), list(sys.orig_argv), list(sys.path), os.getcwd()
    environment, hook = dict(os.environ), sys.excepthook
    main_module = sys.modules.get("__main__")
    built_in = dict(builtins.__dict__)
    library = {
        name: module for name, module in sys.modules.items() if name.partition(".")[0] in sys.stdlib_module_names
    }
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals() - _OF_OTHERS}
    # A plain process has these; the engine's own would swallow Ctrl-C and stop the engine.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
            signal.setitimer(timer, 0)  # first: an alarm of this script's ends no other, nor the idle engine
        faulthandler.cancel_dump_traceback_later()
        restore_builtins(built_in)
        sys.modules.update(library)  # also where the script put something else under such a name, or nothing
        sys.argv, sys.orig_argv, sys.path[:], sys.excepthook = argv, original, path, hook
        for number, handler in handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:  # None: not set by Python
                signal.signal(number, handler)
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update(environment)
        if main_module is not None:
            sys.modules["__main__"] = main_module
        if os.path.isdir(directory):
            os.chdir(directory)


class OwnBuiltins:
    """Inside, builtins are Python's: our code must not call what a script put in the place of ``open`` or ``len``.

    Threads of the script see that too, so it is for short stretches. What the script put there comes back at the end.
    ``__import__`` stays: hidden modules have theirs there. (Not a generator: it would need ``next``.)
    """

    def __init__(self) -> None:
        self._users: dict[str, Any] = {}

    def __enter__(self) -> None:
        current = builtins.__dict__
        for name, value in _BUILT_IN.items():
            users = current.get(name, _MISSING)
            if users is not value and name != "__import__":
                self._users[name] = users
                current[name] = value

    def __exit__(self, *_: object) -> None:
        current = builtins.__dict__
        for name, users in self._users.items():
            if current.get(name) is not _BUILT_IN[name]:
                continue  # the script has set it meanwhile
            if users is _MISSING:
                del current[name]
            else:
                current[name] = users


def restore_builtins(before: Mapping[str, Any], *, keep: Collection[str] = ()) -> None:
    """Give Python's builtins the values that they had before; what was added stays.

    Args:
        before: their values.
        keep: names that stay as they are.
    """
    current = builtins.__dict__  # vars() may be one of those
    for name, value in before.items():
        if name not in keep and current.get(name, current) is not value:
            current[name] = value


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
            except BaseException as error:  # reported as Python does, without our own frame
                with OwnBuiltins():
                    print(f"Exception ignored in atexit callback: {function!r}", file=sys.stderr)
                    traceback.print_exception(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
    finally:
        atexit.register, atexit.unregister = register, unregister


def _fresh_randomness() -> None:
    """Random numbers as at the start of a process: each rank's own, until the script seeds them."""
    torch.seed()
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
