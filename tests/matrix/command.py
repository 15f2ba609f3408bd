"""A command line that is run as its user types it, in a folder of its own, with a deadline."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.matrix.program import Program

_LOSS = re.compile(r"\S+.*? loss (-?\d+\.\d+)")
_GROUP_ENDS = "c10d::ProcessGroupGloo::~ProcessGroupGloo"
_ABORTED = "terminate called without an active exception"


class Command:
    """The folder of a program, copied, and its command in it; ``prefix`` stands before the command."""

    def __init__(self, folder: Path, program: Program, prefix: tuple[str, ...] = (), deadline: float = 100) -> None:
        self.folder = folder
        shutil.copytree(program.path.parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
        output = folder / "output.txt"
        with output.open("w") as file:
            self._process = subprocess.Popen(
                [*prefix, *program.arguments],
                cwd=folder, env=_environment(program), stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                self.status: int | None = self._process.wait(deadline)
            except subprocess.TimeoutExpired:
                self.status = None
        self.output = output.read_text(errors="replace")

    @property
    def losses(self) -> list[str]:
        """The losses that the program printed, sorted: lines of several ranks have no order."""
        return sorted(_LOSS.findall(self.output))

    def failed_in_torch(self) -> bool:
        """Whether torch 2.13 failed as it deleted the process group, as it does at times when the machine is busy.

        A thread of gloo that has finished a collective takes the interpreter's lock to release a tensor. If the process
        group is deleted meanwhile, its destructor waits for the thread with the lock held, without end; if the
        interpreter ends meanwhile, the thread aborts the process.
        """
        if self.status is None:
            return any(_GROUP_ENDS in _native_stacks(process) for process in self._processes())
        return _ABORTED in self.output

    def left(self, patience: float = 5.0) -> list[psutil.Process]:
        """Processes of the command that have not ended."""
        until = time.monotonic() + patience
        while (left := self._processes()) and time.monotonic() < until:
            time.sleep(0.1)
        return left

    def end(self) -> None:
        for process in self._processes():
            process.kill()
        self._process.wait(10)

    def _processes(self) -> list[psutil.Process]:
        """Those of its session, and those that work in its folder: launchers give their workers sessions of their own."""
        found = []
        for process in psutil.process_iter():
            try:
                here = process.cwd() == str(self.folder) or os.getsid(process.pid) == self._process.pid
                if here and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found


def _native_stacks(process: psutil.Process) -> str:
    """By py-spy; empty if this is no Python process, or the system refuses."""
    dump = [os.path.join(os.path.dirname(sys.executable), "py-spy"), "dump", "--native", "--pid", str(process.pid)]
    return subprocess.run(dump, capture_output=True, text=True, timeout=60, check=False).stdout


def _environment(program: Program) -> dict[str, str]:
    """A user's: the environment's own commands first, one thread for each rank, and no downloads."""
    settings = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "100"}
    settings["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    if program.needs_port:
        settings |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    return {**os.environ, **settings}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
