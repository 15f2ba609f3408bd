"""The process that has torch imported and forks others, as its launcher orders: engines, or ranks of a script.

It starts no thread and initialises no device, so that the memory of all can come from it. A fork is then as in an
interpreter of its own, but for the hash seed of strings and what a module chose from the environment at its import: these
are the same on all ranks. No program of the user is ever imported in it.

The launcher writes orders, and reads answers, as lines of JSON on a socket. Each order gets an answer (``pid``, or
``error``), in their order; ``pid`` and ``ended`` together say how a fork ended (negative: by a signal).
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
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ddpnb.ranks.interpreter import SCRIPT, TRAINING
from ddpnb.recorder.process import parent_death, shown_environment
from ddpnb.recorder.process.loading import without_collection
from ddpnb.recording.protocol import FOLDER

_THREADS = "OMP_NUM_THREADS"
_DONTNEED = 4  # of madvise
# What an engine imports when it starts: once, for all.
_IMPORTED_LATER = (
    "numpy.random", "sqlite3", "tornado.platform.asyncio", "IPython.core.oinspect", "IPython.core.completerlib",
    "IPython.extensions.storemagic", "ddpnb.ranks.engines.replying",
)  # fmt: skip
# What a wrapper imports, which takes half as long as to import torch.
_BY_A_WRAPPER = b"DistributedDataParallel"


def serve(imports: str, descriptor: int, idle_s: float) -> dict[str, Any]:
    """Import what the forks need, and fork them until the launcher closes the socket. Returns only in a fork, with its order.

    An order has ``environment``, ``directory`` and ``log`` (paths), and ``arguments``. Ranks of a script also have
    ``script``, whether it is a ``module``, and ``lead_s``: how long to wait before the next fork.

    Args:
        imports: ``TORCH``, for engines; ``TRAINING``: also what each optimizer of torch imports when it is made, 150 MB;
            or ``SCRIPT``.
        descriptor: of the socket.
        idle_s: end after so many seconds without forks and orders; 0: never.
    """
    room = shown_environment.room()
    server = _Server(socket.socket(fileno=descriptor), room)
    with without_collection():
        import torch  # noqa: F401

        if imports == SCRIPT:
            from ddpnb.recorder import plain  # noqa: F401
            from ddpnb.recorder.inject import activation  # noqa: F401
        else:
            _load_engine(imports)
    gc.freeze()  # else each fork looks through the half million objects of torch when it ends, and copies their pages
    if imports != SCRIPT:
        _leave_files()
    return server.serve(_unfit(), idle_s or None)


def _load_engine(imports: str) -> None:
    from ddpnb.ranks.engines import engine
    from ddpnb.recorder import rank  # noqa: F401
    from ddpnb.recorder.process import hidden_modules

    if imports == TRAINING:
        import torch._dynamo  # noqa: F401
    hidden_modules.stack_begins()
    engine.load()
    for name in _IMPORTED_LATER:
        with contextlib.suppress(ImportError):
            import_module(name)


class _Server:
    """Serves the orders of the launcher.

    Args:
        connection: to it.
        room: where a fork shows its variables.
    """

    def __init__(self, connection: socket.socket, room: int | None) -> None:
        self._socket, self._room = connection, room
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        self._wake = wake
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._handler = signal.signal(signal.SIGCHLD, lambda *_: None)
        self._received = b""
        self._forks: set[int] = set()

    def serve(self, unfit: str, idle_s: float | None) -> dict[str, Any]:
        """Serve until the launcher closes the socket. Returns only in a fork, with its order.

        Args:
            unfit: why this process must not fork; empty if it may.
            idle_s: end after so many seconds without forks and orders.
        """
        self._send({"ready": True, "unfit": unfit})
        if unfit:
            os._exit(0)
        while True:
            ready, _, _ = select.select([self._socket, self._woken], [], [], idle_s)
            if not ready and not self._forks:
                os._exit(0)
            if self._woken in ready:
                self._report_ends()
            if self._socket not in ready:
                continue
            received = self._socket.recv(1 << 16)
            if not received:
                os._exit(0)  # the forks die with this process
            *lines, self._received = (self._received + received).split(b"\n")
            for line in lines:
                order = json.loads(line)
                if "script" in order:
                    _load_for(order)
                if self._fork(order):
                    return order
                time.sleep(order.get("lead_s", 0.0))

    def _fork(self, order: Mapping[str, Any]) -> bool:
        """Fork; whether this is the fork."""
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
            _become(order, parent, self._room)
            os.close(begin)
            return True
        os.close(begin)
        os.read(begun, 1)  # the end of the file: it has a session of its own, and can be killed with all that it starts
        os.close(begun)
        self._forks.add(pid)
        self._send({"pid": pid})
        return False

    def _leave(self) -> None:
        """In a fork: nothing is left of the server."""
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
                self._forks.discard(ended[0])
                self._send({"pid": ended[0], "ended": os.waitstatus_to_exitcode(ended[1])})

    def _send(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # then the next read ends this process
            self._socket.sendall(json.dumps(message).encode() + b"\n")


# -- what must be so before a fork


def _load_for(order: Mapping[str, Any]) -> None:
    """Import what ranks of this script will most probably need."""
    if "torch._dynamo" in sys.modules or order["module"]:
        return
    with contextlib.suppress(OSError), open(order["script"], "rb") as file:
        if _BY_A_WRAPPER not in file.read(1_000_000):
            return
        with without_collection():
            import torch._dynamo  # noqa: F401
        gc.freeze()


def _unfit() -> str:
    """Why this process must not fork ranks; empty if it may."""
    import torch

    if torch.cuda.is_initialized():
        return "an import has initialised CUDA"
    names = _threads()
    return f"an import has started {len(names)} threads ({', '.join(sorted(set(names)))})" if names else ""


def _threads() -> list[str]:
    """The names of other threads of this process, which a fork would not copy.

    A library that stops its threads before a fork (OpenBLAS) has done so after the first one. Without ``/proc`` those
    that Python knows are named.
    """
    if not os.path.isdir("/proc/self/task"):
        return [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
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


# -- in a fork


def _become(order: Mapping[str, Any], parent: int, room: int | None) -> None:
    """Make this process, which was just forked, what a new interpreter with this order would be."""
    os.setsid()
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(order["directory"])
    threads = os.environ.get(_THREADS)
    wanted = order["environment"]
    os.environ.clear()
    os.environ.update(wanted)
    shown_environment.show(room, {"RANK": wanted["RANK"], FOLDER: wanted[FOLDER]})
    parent_death.bind_to_parent(parent)
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


def run_script(order: Mapping[str, Any], import_path: int) -> None:
    """Be a rank that runs the script of this order.

    Args:
        order: see ``serve``.
        import_path: where ``sys.path`` has the working directory; negative: nowhere.
    """
    from ddpnb.recorder.inject import activation

    script, arguments = order["script"], order["arguments"]
    sys.argv = [script, *arguments]
    sys.orig_argv = [sys.executable, *(["-m"] if order["module"] else []), *sys.argv]
    activation.forked_rank()  # it records this command
    if import_path >= 0:
        sys.path.insert(import_path, os.getcwd())
    if order["module"]:
        import runpy

        _first_on_path(os.getcwd())
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        from ddpnb.recorder.process.script import folder_of
        from ddpnb.recorder.process.script import script as program

        _first_on_path(folder_of(script))
        program(script, arguments)()


def _first_on_path(folder: str) -> None:
    if not sys.flags.safe_path:
        sys.path.insert(0, folder)
