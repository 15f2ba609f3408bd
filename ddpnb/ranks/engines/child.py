"""Entry of the processes of a world; the arguments are ``engine``, ``controller`` or ``forks``, a folder, and theirs.

Each dies with its launcher. Each comes up in the world's folder: ipyparallel puts the working directory first on the
import path, where a file of the user (``queue.py``) would stand in for a module of ours. An engine imports torch and installs its hooks before it looks for the
controller, so that both come up at the same time.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    sys.path.pop(0)  # the folder of this file: its modules are imported as ddpnb.ranks's alone

import os

_NAMED = os.environ.get("PYTHONPATH", "").split(os.pathsep)
_AT, _HERE = -1, os.getcwd() if __name__ == "__main__" else ""
if _HERE and len(_NAMED) > 1 and "" in _NAMED and _HERE not in _NAMED and _HERE in sys.path:
    _AT = sys.path.index(_HERE)  # an empty entry means the working directory: ranks get it back when they are up
    sys.path.remove(_HERE)

import gc  # noqa: E402

from ddpnb.recorder.process import loading, parent_death  # noqa: E402


def main() -> None:
    parent_death.bind_to_parent()
    kind, folder = sys.argv.pop(1), sys.argv.pop(1)
    if kind == "forks":
        os.chdir(folder)
        from ddpnb.ranks import fork_server

        order = fork_server.serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))  # from here on this is a fork
        if "script" in order:
            fork_server.run_script(order, _AT)
            return
        sys.argv[1:] = order["arguments"]
        sys.orig_argv = [sys.executable, *sys.argv]
        kind, folder = sys.argv.pop(1), sys.argv.pop(1)
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)  # there is no agent: rank 0 hosts the store
    directory = os.getcwd()
    os.chdir(folder)
    if kind == "controller":
        from ddpnb.ranks.engines import engine

        serve = engine.load_controller()
    else:
        with loading.without_collection():
            from ddpnb.recorder import rank  # imports torch
        gc.freeze()  # else each collection looks through the half million objects of torch

        started = rank.start()
        started.directory = directory
        if _AT >= 0:
            started.import_path = _AT, directory
        from ddpnb.ranks.engines import engine

        serve = engine.load()
    sys.exit(serve())


if __name__ == "__main__":
    main()
