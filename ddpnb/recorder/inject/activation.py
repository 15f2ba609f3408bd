"""Decides in which processes of a job the recorder starts, and starts it there.

A process becomes a rank when it initialises a process group: only then its rank and the world size are known, whatever
launched it. Where the environment names the rank (torchrun, ``ddpnb run SCRIPT``), the recorder starts as soon as torch
is imported, so that what happens before the group is made is recorded too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ddpnb.recorder.events.bindings import rebind
from ddpnb.recording import protocol, rpc
from ddpnb.recording.files import private

_INIT, _MODULE = "init_process_group", "torch.distributed.distributed_c10d"
_PLACES = {"world_size": 3, "rank": 4}  # of its arguments

_endings: Any = None  # of a rank that ddpnb has started: installed before torch is imported
_folder = ""  # of the ranks that ddpnb has started, if this process is one
_started = False
_hook: tuple[Any, Any] | None = None  # what stands for ``init_process_group``, and the original


def rank_started(forked_by: int = 0) -> None:
    """Called first in a process that ddpnb itself has started as a rank, or has forked from that process.

    So does the program by which a rank replaces itself.
    """
    global _folder
    from ddpnb.recorder.process import parent_death

    if started := os.environ.pop(protocol.START, ""):
        os.environ[protocol.RANK_OF] = f"{os.getpid()}:{started}"  # what it starts has another number, and is no rank
        parent_death.bind_to_parent(forked_by)
    _folder = os.environ[protocol.RANK_OF].partition(":")[2]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it is a file: what it printed is shown at once
    _end_watch(_folder, int(os.environ["RANK"]))


def forked_rank() -> None:
    """Called in a process that was forked, with torch imported, to be a rank."""
    rank_started(os.getppid())
    _unhook()
    start(int(os.environ["RANK"]), _number("WORLD_SIZE"), protocol.address_of_environment())


def torch_imported() -> None:
    """Called when a process has imported torch."""
    rank = os.environ.get("RANK", "")
    if _folder or (rank.isdecimal() and not _parent_has(rank)):
        start(int(rank), _number("WORLD_SIZE"), protocol.address_of_environment())
    else:
        _wait_for_group()
        _note_rpc()
        _note_children()


def _note_rpc() -> None:
    """It may wait for others in ``init_rpc``, which makes no rank of it."""
    module, folder = sys.modules.get("torch.distributed.rpc"), protocol.job_folder(os.environ)
    original = vars(module).get("init_rpc") if module is not None and folder else None
    if original is None:
        return
    from functools import wraps

    @wraps(original)
    def init_rpc(*args: Any, **kwargs: Any) -> Any:
        path = ""
        with suppress(Exception):
            path = "" if _started else rpc.note(folder, args, kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            with suppress(OSError):
                os.unlink(path)

    rebind({id(original): init_rpc}, {"init_rpc"})


def _note_children() -> None:
    """It may start ranks by ``multiprocessing``."""
    try:
        from ddpnb.recorder.inject import children

        if folder := protocol.job_folder(os.environ):
            children.note_ends(folder, lambda: _started)
            children.note_exceptions(folder, lambda: _started)
    except Exception as error:
        _refused(f"{type(error).__name__}: {error}")


def _parent_has(rank: str) -> bool:
    """Whether the parent process was given the same rank: then this is a child of a rank (a data worker, a compiler)."""
    try:
        with open(f"/proc/{os.getppid()}/environ", "rb") as file:
            return f"RANK={rank}".encode() in file.read().split(b"\0")
    except OSError:
        return True


def _wait_for_group() -> None:
    """Start the recorder when ``init_process_group`` is called."""
    global _hook
    module = sys.modules.get(_MODULE)
    original = vars(module).get(_INIT) if module is not None else None
    if original is not None:
        _hook = _starting(original), original
        rebind({id(original): _hook[0]}, {_INIT})


def _starting(original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands for ``init_process_group`` where a script may have imported it by name: it calls today's function."""
    from functools import wraps

    @wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        if not _started:
            _group_begins(args, kwargs)
        current = getattr(sys.modules[_MODULE], _INIT)
        return (original if current is init_process_group else current)(*args, **kwargs)

    return init_process_group


def _unhook() -> None:
    """Put the original back, in the place of which the recorder puts its own hook now."""
    if _hook is not None:
        rebind({id(_hook[0]): _hook[1]}, {_INIT})


def _group_begins(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _unhook()
    try:
        from urllib.parse import parse_qs, urlsplit

        method = str(args[1] if len(args) > 1 else kwargs.get("init_method") or "env://")
        query = {name: values[-1] for name, values in parse_qs(urlsplit(method).query).items()}

        def number(name: str) -> int:
            place = _PLACES[name]
            value = args[place] if len(args) > place else kwargs.get(name)
            if value is None or int(value) < 0:
                value = query.get(name, os.environ.get(name.upper(), ""))
            return int(value)

        address = protocol.address_of_environment() if method.startswith("env://") else method.partition("?")[0]
        if (args[5] if len(args) > 5 else kwargs.get("store")) is not None:
            address = "a store of the script's"
        start(number("rank"), number("world_size"), address.removeprefix("tcp://"))
    except Exception as error:
        _refused(f"{type(error).__name__}: {error}")


def start(rank: int, size: int, address: str) -> None:
    """Make this process a rank: its recorder, its control channel, its identity."""
    global _started
    _started = True
    try:
        from ddpnb.recorder.process.loading import without_collection

        if not _folder and protocol.HOSTS in os.environ:
            from ddpnb.recorder.inject import other_host

            other_host.join()
        folder = _folder or protocol.claim(protocol.job_folder(os.environ), address, rank)
        _end_watch(folder, rank)
        with without_collection():
            from ddpnb.recorder import plain

        plain.start(folder, rank, size, address, _endings, ours=bool(_folder))
    except Exception as error:
        _refused(f"{type(error).__name__}: {error}")


def _end_watch(folder: str, rank: int) -> None:
    """Record how this process ends, from now on."""
    global _endings
    if _endings is None:
        from ddpnb.recorder.process.endings import Endings

        _endings = Endings(folder, rank)
        _endings.install()


def _refused(why: str) -> None:
    """Say once that this process is not recorded; the training continues."""
    print(f"ddpnb: this process is not recorded: {why[:500]}", file=sys.stderr, flush=True)
    try:
        with open(os.path.join(protocol.job_folder(os.environ), f"refused-{os.getpid()}"), "w", opener=private) as file:
            file.write(f"{sys.executable}\n{why[:500]}")
    except OSError:
        pass


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else 0
