"""The process of a world that has torch imported and forks the engines, where ``launch(fork=True)`` asks for it.

It starts no thread and initialises no device, so that the memory of all ranks can come from it. A rank is then as in an
interpreter of its own, but for the hash seed of strings and what a module chose from the environment at its import: these
are the same on all ranks.

The launcher writes orders, and reads answers, as lines of JSON on a socket. Each order gets an answer (``pid``, or
``error``), in their order; ``pid`` and ``ended`` together say how a rank ended (negative: by a signal).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import random
import select
import signal
import socket
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ddpnb import arguments
from ddpnb.errors import UsageError
from ddpnb.processes.engines import engine
from ddpnb.recorder import parent_death
from ddpnb.recorder.loading import without_collection
from ddpnb.recorder.protocol import FORK, PLACE_OF_RANK

TORCH, TRAINING = "torch", "training"  # what is imported before ranks are forked
_THREADS = "OMP_NUM_THREADS"
_DONTNEED = 4  # of madvise
# What an engine imports when it starts: once, for all.
_IMPORTED_LATER = (
    "numpy.random", "sqlite3", "tornado.platform.asyncio", "IPython.core.oinspect", "IPython.core.completerlib",
    "IPython.extensions.storemagic", "ddpnb.processes.engines.replying",
)  # fmt: skip


def imports_for(fork: object) -> str:
    """What is imported before ranks are forked; empty: they are not.

    Args:
        fork: as for ``launch()``; None: what the variable DDPNB_FORK says.

    Raises:
        UsageError: it is something else.
    """
    name = "fork" if fork is not None else FORK
    given = os.environ.get(FORK, "0") or "0" if fork is None else fork
    known = {"0": "", "1": TORCH, TRAINING: TRAINING}
    text = str(int(given)) if isinstance(given, bool) else given
    if not isinstance(text, str) or text not in known:
        raise UsageError(
            f"{name} must not be {arguments.short(given)}.",
            f'fork=True or DDPNB_FORK=1 forks ranks, fork="{TRAINING}" or DDPNB_FORK={TRAINING} with more imported.',
        )
    return known[text]


class _Server:
    """Serves the orders of the launcher.

    Args:
        descriptor: of the socket.
    """

    def __init__(self, descriptor: int) -> None:
        self._place = _place_of(f"RANK={PLACE_OF_RANK}".encode())
        os.environ.pop("RANK", None)  # whatever is imported here must not take it for its rank
        self._socket = socket.socket(fileno=descriptor)
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        self._wake = wake
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._handler = signal.signal(signal.SIGCHLD, lambda *_: None)
        self._received = b""

    def serve(self) -> dict[str, Any]:
        """Serve until the launcher closes the socket. Returns only in a forked engine, with its order."""
        unfit = _unfit()
        self._send({"ready": True, "unfit": unfit})
        if unfit:
            os._exit(0)
        while True:
            ready, _, _ = select.select([self._socket, self._woken], [], [])
            if self._woken in ready:
                self._report_ends()
            if self._socket not in ready:
                continue
            received = self._socket.recv(1 << 16)
            if not received:
                os._exit(0)  # the ranks die with this process
            *lines, self._received = (self._received + received).split(b"\n")
            for line in lines:
                order = json.loads(line)
                if self._fork(order):
                    return order

    def _fork(self, order: Mapping[str, Any]) -> bool:
        """Fork an engine; whether this is it."""
        parent = os.getpid()
        begun, begin = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(begun)
            os.close(begin)
            self._send({"error": error.errno})
            return False
        if not pid:
            os.close(begun)
            self._leave()
            _become(order, parent, self._place)
            os.close(begin)
            return True
        os.close(begin)
        os.read(begun, 1)  # the end of the file: it has a session of its own, and can be killed with all that it starts
        os.close(begun)
        self._send({"pid": pid})
        return False

    def _leave(self) -> None:
        """In a forked engine: nothing is left of the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, self._handler if self._handler is not None else signal.SIG_DFL)
        self._socket.close()
        os.close(self._woken)
        os.close(self._wake)

    def _report_ends(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._woken, 1 << 10):
                pass
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._send({"pid": ended[0], "ended": os.waitstatus_to_exitcode(ended[1])})

    def _send(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # then the next read ends this process
            self._socket.sendall(json.dumps(message).encode() + b"\n")


def serve(imports: str, descriptor: int) -> dict[str, Any]:
    """Import what ranks need, and fork them. Returns only in a forked engine, with its order.

    An order has ``arguments`` (of the process), ``environment``, ``directory`` and ``log`` (paths).

    Args:
        imports: ``TORCH``, or ``TRAINING``: also what each optimizer of torch imports when it is made, 150 MB.
        descriptor: of the socket.
    """
    server = _Server(descriptor)
    with without_collection():
        from ddpnb.recorder import hidden_modules, rank  # noqa: F401 (imports torch)

        if imports == TRAINING:
            import torch._dynamo  # noqa: F401
        hidden_modules.stack_begins()
        engine.load()
        for name in _IMPORTED_LATER:
            with contextlib.suppress(ImportError):
                import_module(name)
    gc.freeze()
    _leave_files()
    return server.serve()


def _unfit() -> str:
    """Why this process must not fork ranks; empty if it may."""
    import torch

    if torch.cuda.is_initialized():
        return "an import has initialised CUDA"
    names = _threads()
    return f"an import has started {len(names)} threads ({', '.join(sorted(set(names)))})" if names else ""


def _threads() -> list[str]:
    """The names of other threads of this process, which a fork would not copy.

    A library that stops its threads before a fork (OpenBLAS) has done so after the first one.
    """
    if len(os.listdir("/proc/self/task")) > 1:
        if not (pid := os.fork()):
            os._exit(0)
        os.waitpid(pid, 0)
    names: list[str] = []
    for task in os.listdir("/proc/self/task"):
        if int(task) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm", errors="replace") as file:
                names.append(file.read().strip())
    return names


def _leave_files() -> None:
    """Unmap the pages of libraries that only their import has read: they are in the cache of files, and come back if needed.

    A mapping of which this process has written any page is left alone.
    """
    madvise = ctypes.CDLL(None).madvise
    begin, end, is_clean_file = 0, 0, False
    with open("/proc/self/smaps") as maps:
        lines = maps.read().splitlines()
    for line in lines:
        name, *rest = line.split(maxsplit=5)
        if not name.endswith(":"):
            begin, end = (int(address, 16) for address in name.split("-"))
            is_clean_file = "w" not in rest[0] and rest[-1].startswith("/")
        elif is_clean_file and name == "Anonymous:" and rest[0] == "0":
            madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _DONTNEED)


def _become(order: Mapping[str, Any], parent: int, place: int | None) -> None:
    """Make this process, which was just forked, what a new interpreter with this order would be."""
    os.setsid()
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(order["directory"])
    threads = os.environ.get(_THREADS)
    wanted = order["environment"]
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)
    _write_rank(place, wanted["RANK"])
    parent_death.bind_to_parent(parent)
    sys.argv[1:] = order["arguments"]
    sys.orig_argv = [sys.executable, *sys.argv]
    _reseed()
    if wanted.get(_THREADS, "") != threads and wanted.get(_THREADS, "").isdecimal():
        import torch

        torch.set_num_threads(int(wanted[_THREADS]))


def _reseed() -> None:
    """New seeds for what a new interpreter seeds from the system."""
    import torch

    random.seed()
    torch.default_generator.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    if (processes := sys.modules.get("multiprocessing.process")) is not None:
        processes.current_process().authkey = os.urandom(32)


def _place_of(variable: bytes) -> int | None:
    """Where a variable of the environment that this process was started with lies in memory.

    What ``os.environ`` sets lies elsewhere: others (``/proc/PID/environ``) see only what a process was started with.
    """
    strings = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    index = 0
    while address := strings[index]:
        if ctypes.string_at(address) == variable:
            return address
        index += 1
    return None


def _write_rank(place: int | None, rank: str) -> None:
    """Show the rank to those who read the environment of this process: what it forks is found by it."""
    if place is None or len(rank) > len(PLACE_OF_RANK) - 3:
        return
    text = f"RANK={rank}".encode() + b"\0_="  # the rest is another variable: a block has no empty one
    ctypes.memmove(place, text, len(text))
