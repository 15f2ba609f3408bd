"""Forks the ranks of ``ddpnb run --fork`` from one process that has torch imported. The argument is a file: see ``main``.

The hash seed and whatever torch chose when it was imported are the same on all ranks, which in separate processes they
are not; random number generators get new seeds.
"""

from __future__ import annotations

import json
import os
import random
import runpy
import sys
import time
from typing import Any

# The first rank holds the store. A client that comes before it tries again half a second later (torch 2.13).
_LEAD_S = 0.05


def main(path: str) -> None:
    """Fork the ranks, wait for them, and write how each ended.

    Args:
        path: of a JSON file: folder, and for each rank its variables and log; script, arguments, and whether it is a
            module.
    """
    with open(path) as file:
        order: dict[str, Any] = json.load(file)
    import torch

    from ddpnb.inject import activation
    from ddpnb.recorder import parent_death, plain  # noqa: F401 (imported once for all ranks)

    if not order["module"] and _wraps_models(order["script"]):
        import torch._dynamo  # by the wrapper, which takes half as long as to import torch

    parent_death.bind_to_parent()
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
    log = os.open(given["log"], os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _run(order: dict[str, Any]) -> None:
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
    with open(os.path.join(folder, f"{name}.part"), "w") as file:
        file.write(str(number))
    os.replace(os.path.join(folder, f"{name}.part"), os.path.join(folder, name))


if __name__ == "__main__":
    main(sys.argv[1])
