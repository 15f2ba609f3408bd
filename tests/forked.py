"""Programs in processes of their own, which are forked from one that has torch imported: the import takes seconds.

A program finds what it would in a new interpreter, but for the modules that are there already. As a program
(``python -m tests.forked SOCKET``) this is the process that forks.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

LIMIT_S = 240.0


class Programs:
    """Runs programs, as ``subprocess.run([sys.executable, "-c", program, *arguments])`` would."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection.makefile("rw")

    def run(
        self,
        program: str,
        *arguments: object,
        name: str = "-c",
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end.

        Args:
            program: its text.
            arguments: its ``sys.argv``, after the ``name``.
            name: the path of the script, if it is one.
            env: as for subprocess.
            cwd: as for subprocess.
        """
        with tempfile.TemporaryDirectory(prefix="forked-") as folder:
            order = {
                "program": program,
                "argv": [name, *map(str, arguments)],
                "env": dict(os.environ if env is None else env),
                "cwd": os.fspath(cwd or os.getcwd()),
                "folder": folder,
            }
            self._connection.write(json.dumps(order) + "\n")
            self._connection.flush()
            status = json.loads(self._connection.readline())
            out, err = (Path(folder, stream).read_text() for stream in ("stdout", "stderr"))
        if status is None:
            raise subprocess.TimeoutExpired(name, LIMIT_S, out, err)
        return subprocess.CompletedProcess([name, *arguments], status, out, err)


@contextlib.contextmanager
def programs() -> Iterator[Programs]:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "tests.forked", str(theirs.fileno())]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parent.parent
    with ours, subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, cwd=root) as process:
        theirs.close()
        programs = Programs(ours)
        try:
            yield programs
        finally:
            programs._connection.close()
            ours.shutdown(socket.SHUT_RDWR)
            process.wait(LIMIT_S)


def _serve(connection: socket.socket) -> dict[str, object]:
    """Fork as ordered; returns in each fork, with its order."""
    with connection, connection.makefile("rw") as lines:
        for line in lines:
            order, parent = json.loads(line), os.getpid()
            pid = os.fork()
            if not pid:
                from ddpnb.recorder.process import parent_death

                parent_death.bind_to_parent(parent)
                return order
            lines.write(json.dumps(_status(pid)) + "\n")
            lines.flush()
    os._exit(0)


def _status(pid: int) -> int | None:
    """How this fork ends; None if it does not, and is killed."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _become(order: dict[str, object]) -> None:
    """Run the program of this order here."""
    for number, stream in ((1, "stdout"), (2, "stderr")):
        with open(os.path.join(order["folder"], stream), "wb") as file:
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.argv[:] = order["argv"]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    name = sys.argv[0]
    if name != "-c":
        main.__file__ = name
        sys.path[0] = os.path.dirname(name)
    exec(compile(order["program"], "<string>" if name == "-c" else name, "exec"), main.__dict__)


if __name__ == "__main__":
    import torch._dynamo  # noqa: F401 (what an optimizer imports when it is made)

    import ddpnb.recorder.process.script  # noqa: F401

    _become(_serve(socket.socket(fileno=int(sys.argv[1]))))
