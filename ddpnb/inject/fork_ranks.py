"""Forks the ranks of ``ddpnb run --fork`` from one process that has torch imported.

The argument is a file: see ``main``. Or it is ``serve``, a socket and a time, for runs that follow one another: then the process
forks one for each run, which forks its ranks. No program of the user is ever imported in it.

The hash seed and whatever torch chose when it was imported are the same on all ranks, which in separate processes they
are not; random number generators get new seeds.
"""

from __future__ import annotations

import gc
import json
import os
import random
import runpy
import sys
import time
from collections.abc import Mapping
from typing import Any

# The first rank holds the store. A client that comes before it tries again half a second later (torch 2.13).
_LEAD_S = 0.05


def main(path: str) -> None:
    """Fork the ranks, wait for them, and write how each ended.

    Args:
        path: of a JSON file: folder, and for each rank its variables and log; script, arguments, and whether it is a
            module.
    """
    from ddpnb.recorder import parent_death

    order = _read(path)
    _load(order)
    parent_death.bind_to_parent()
    _fork_ranks(order)


def serve(descriptor: int, idle_s: float) -> None:
    """Do the same for each order on this socket, in a fork of its own; end after so many seconds without one.

    An order has ``path`` (as for ``main``), ``environment``, ``directory`` and ``log`` (of the fork).
    """
    from ddpnb.recorder import parent_death, protocol, shown_environment
    from ddpnb.recorder.forking import Forking
    from ddpnb.recorder.loading import without_collection

    parent_death.bind_to_parent()
    with without_collection():
        import torch
    place = shown_environment.place_of(protocol.FOLDER, protocol.PLACE_OF_FOLDER)

    def become(order: Mapping[str, Any], parent: int) -> None:
        os.setsid()
        _log_to(order["log"])
        os.chdir(order["directory"])
        os.environ.clear()
        os.environ.update(order["environment"])
        shown_environment.show(place, protocol.FOLDER, os.environ[protocol.FOLDER], protocol.PLACE_OF_FOLDER)
        parent_death.bind_to_parent(parent)

    unfit = "CUDA is initialised" if torch.cuda.is_initialized() else ""
    order = Forking(descriptor, become).serve(unfit, lambda order: _load(_read(order["path"])), idle_s)
    _fork_ranks(_read(order["path"]))


def _read(path: str) -> dict[str, Any]:
    with open(path) as file:
        return json.load(file)


def _load(order: Mapping[str, Any]) -> None:
    """Import what all ranks need."""
    from ddpnb.recorder.loading import without_collection

    with without_collection():
        import torch

        from ddpnb.inject import activation  # noqa: F401
        from ddpnb.recorder import plain  # noqa: F401

        if not order["module"] and _wraps_models(order["script"]):
            import torch._dynamo  # noqa: F401 (by the wrapper, which takes half as long as to import torch)
    gc.freeze()  # else each rank looks through the half million objects of torch when it ends, and copies their pages


def _fork_ranks(order: Mapping[str, Any]) -> None:
    import torch

    from ddpnb.inject import activation

    ranks: dict[int, int] = {}
    for rank, given in order["ranks"].items():
        pid = os.fork()
        if not pid:
            _become(given)
            torch.seed()
            activation.forked_rank(order["folder"])
            _run(order)
            return
        if not ranks:
            time.sleep(_LEAD_S)
        ranks[pid] = int(rank)
        _write(order["folder"], f"rank{rank}.pid", pid)
    while ranks:
        pid, status = os.wait()
        _write(order["folder"], f"rank{ranks.pop(pid)}.exit", os.waitstatus_to_exitcode(status))
    sys.stdout.flush()
    os._exit(0)  # to end as usual takes a quarter of a second, and nothing is left to do


def _wraps_models(script: str) -> bool:
    """Whether the ranks will most probably wrap a model, and so need what torch imports only then."""
    try:
        with open(script, "rb") as file:
            return b"DistributedDataParallel" in file.read(1_000_000)
    except OSError:
        return False


def _become(given: dict[str, Any]) -> None:
    os.setsid()
    os.environ.update(given["variables"], DDPNB_PARENT=str(os.getppid()))
    _log_to(given["log"])
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _log_to(path: str) -> None:
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _run(order: Mapping[str, Any]) -> None:
    script, arguments = order["script"], order["arguments"]
    sys.argv = [script, *arguments]
    sys.orig_argv = [sys.executable, *(["-m"] if order["module"] else []), *sys.argv]
    if order["module"]:
        sys.path[0] = os.getcwd()
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        from ddpnb.recorder.script import folder_of
        from ddpnb.recorder.script import script as program

        sys.path[0] = folder_of(script)
        program(script, arguments)()


def _write(folder: str, name: str, number: int) -> None:
    from ddpnb.files import write_private

    write_private(os.path.join(folder, name), str(number))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]), float(sys.argv[3]))
    else:
        main(sys.argv[1])
