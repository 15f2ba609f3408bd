"""Ranks for a measurement: plain interpreters and torchrun, where their files are, and what memory they take."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import psutil

TORCHRUN = os.path.join(os.path.dirname(sys.executable), "torchrun")
#: bytecode is cached, as it is for users
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@contextlib.contextmanager
def memory_folder() -> Iterator[str]:
    """A temporary folder in memory, where the machine has one."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        yield folder


@contextlib.contextmanager
def script(text: str) -> Iterator[str]:
    """The path of a script with this text, alone in a folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script.py"
        path.write_text(text)
        yield str(path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def variables(n: int, port: int, rank: int) -> dict[str, str]:
    """What torchrun sets."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n}
    return {name: str(value) for name, value in {**shared, "RANK": rank, "LOCAL_RANK": rank}.items()}


def interpreters(
    n: int, command: list[str], environment: Mapping[str, str] = ENVIRONMENT, timeout: float = 300
) -> tuple[str, list[int]]:
    """Run ``n`` ranks as torchrun would start them, without an agent: what all wrote, and their exit statuses."""
    port = free_port()
    started: list[subprocess.Popen[str]] = []
    try:
        for rank in range(n):
            of_rank = {**environment, **variables(n, port, rank)}
            started.append(
                subprocess.Popen(command, env=of_rank, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            )
        until = time.monotonic() + timeout
        written = [process.communicate(timeout=max(1.0, until - time.monotonic()))[0] for process in started]
        return "".join(written), [process.returncode for process in started]
    finally:
        for process in started:
            with contextlib.suppress(OSError):
                process.kill()
            process.wait()


def family(pid: int) -> list[psutil.Process]:
    top = psutil.Process(pid)
    return [top, *top.children(recursive=True)]


def pss(processes: Iterable[psutil.Process | int]) -> list[float]:
    """MB of each process, where what several share counts once in all."""
    sizes: list[float] = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            one = psutil.Process(process) if isinstance(process, int) else process
            sizes.append(one.memory_full_info().pss / 1e6)
    return sizes
