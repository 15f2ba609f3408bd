"""The process of a world that has torch imported and forks the engines, where ``launch(fork=True)`` asks for it.

It starts no thread and initialises no device, so that the memory of all ranks can come from it. A rank is then as in an
interpreter of its own, but for the hash seed of strings and what a module chose from the environment at its import: these
are the same on all ranks.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ddpnb import arguments
from ddpnb.errors import UsageError
from ddpnb.processes.engines import engine
from ddpnb.recorder import parent_death, shown_environment
from ddpnb.recorder.forking import Forking
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


def serve(imports: str, descriptor: int) -> dict[str, Any]:
    """Import what ranks need, and fork them. Returns only in a forked engine, with its order.

    An order has ``arguments`` (of the process), ``environment``, ``directory`` and ``log`` (paths).

    Args:
        imports: ``TORCH``, or ``TRAINING``: also what each optimizer of torch imports when it is made, 150 MB.
        descriptor: of the socket.
    """
    place = shown_environment.place_of("RANK", PLACE_OF_RANK)
    os.environ.pop("RANK", None)  # whatever is imported here must not take it for its rank
    forking = Forking(descriptor, lambda order, parent: _become(order, parent, place))
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
    return forking.serve(_unfit())


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
    shown_environment.show(place, "RANK", wanted["RANK"], PLACE_OF_RANK)
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
