"""Ranks in plain processes that ddpnb starts: each a fresh interpreter with torchrun's environment."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from ddpnb.errors import WorldError
from ddpnb.files import private
from ddpnb.processes import descendants
from ddpnb.processes.exit_reasons import cannot_start
from ddpnb.processes.jobs.job_processes import Identity, JobProcesses
from ddpnb.processes.jobs.kept_connections import KeptConnections
from ddpnb.processes.process_samples import GONE, STOPPED, kernel_status
from ddpnb.recorder import protocol

START_S = 60.0  # for the system to start one process


@dataclass(frozen=True, slots=True)
class Program:
    """What a rank runs.

    Attributes:
        script: its path, or the name of a module.
        arguments: those of the script.
        module: it is a module (``python -m``).
        python: the interpreter.
    """

    script: str
    arguments: tuple[str, ...] = ()
    module: bool = False
    python: str = sys.executable

    @property
    def command(self) -> list[str]:
        return [self.python, *(["-m"] if self.module else []), self.script, *self.arguments]


class Child(Protocol):
    """A process that was started, as ``subprocess.Popen`` has it."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...


class SpawnedProcesses(JobProcesses):
    """One process per rank.

    Args:
        folder: of the job.
        program: what each rank runs.
        logs: for each rank the file that takes its standard output and error.
        directory: in which it runs.
    """

    def __init__(self, folder: str, program: Program, logs: Mapping[int, str], directory: str) -> None:
        super().__init__(folder)
        self._command = program.command
        self._logs = logs
        self._directory = directory
        self._owner = os.getpid()
        self._children: dict[int, Child] = {}
        self._devices: dict[int, str] = {}
        self._waiting = threading.Lock()
        self._ended = False  # what starts now ends at once
        self._kept = KeptConnections(folder)
        # Linux tells a child about the death of the *thread* that started it: this one lives as long as the ranks.
        self._starter = ThreadPoolExecutor(1, "ddpnb starter")

    def start(self, environments: Mapping[int, dict[str, str]], timeout: float = START_S) -> None:
        """Start a process for each rank; they are found by their identity a little later.

        Raises:
            LaunchError: the system refuses a process.
        """
        try:
            for rank, environment in environments.items():
                self._starter.submit(self._begin, rank, environment).result(timeout)
                self.progress(len(self._children), len(environments))
        except (OSError, RuntimeError) as error:
            self.stop()
            raise cannot_start(error) from None

    def _begin(self, rank: int, environment: dict[str, str]) -> None:
        if not self._ended:
            self._start(rank, environment)
        if self._ended and rank in self._children:  # nobody else knows of it
            self.kill(rank)

    def _start(self, rank: int, environment: dict[str, str]) -> None:
        self._devices[rank] = environment.get(protocol.DEVICE, "")
        with open(self._logs[rank], "ab", opener=private) as log:
            self._children[rank] = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=self._marks(environment),
                start_new_session=True,
            )

    def _marks(self, environment: dict[str, str]) -> dict[str, str]:
        """The environment of a process that is a rank."""
        return {**environment, protocol.START: self.folder}

    # -- state: of our own children all is known

    @property
    def owned(self) -> bool:
        return os.getpid() == self._owner

    def check_owner(self) -> None:
        if not self.owned:
            raise WorldError(
                f"these ranks belong to process {self._owner}; this is a forked child of it.",
                "Use them in the process that started them.",
            )

    def identity(self, rank: int) -> Identity | None:
        known = super().identity(rank)
        return known if known is not None and known.pid == self.pid(rank) else None

    def keep_connections(self) -> None:
        """Keep the connections of ranks that have ended until ``stop()``."""
        self._kept.keep()

    def pid(self, rank: int) -> int:
        child = self._children.get(rank)
        return child.pid if child is not None else 0

    def device(self, rank: int) -> str:
        return self._devices[rank]

    def alive(self, rank: int) -> bool:
        return self.exit_status(rank) is None and kernel_status(self.pid(rank)) != GONE

    @property
    def some_live(self) -> bool:
        """Whether one of them has not ended."""
        return any(self.exit_status(rank) is None for rank in list(self._children))

    def stopped(self, rank: int) -> bool:
        return kernel_status(self.pid(rank)) in STOPPED

    def exit_status(self, rank: int) -> int | None:
        with self._waiting:
            return self._children[rank].poll() if self.owned else None

    def parent_of(self, rank: int) -> str:  # noqa: ARG002
        return ""

    # -- end

    def send(self, number: int) -> list[int]:
        """Give a signal to the ranks that run, each with what it has started in its process group, as torchrun does.

        Returns:
            These ranks.
        """
        reached: list[int] = []
        for rank in sorted(self._devices):
            with contextlib.suppress(OSError):  # one that is being forked has no process group yet
                if rank >= 0 and self.exit_status(rank) is None and self.pid(rank):
                    os.killpg(self.pid(rank), number)
                    reached.append(rank)
        return reached

    def kill(self, rank: int) -> None:
        self.check_owner()
        if self.exit_status(rank) is None:
            descendants.end([self.pid(rank)])

    def stop(self) -> None:
        if not self.owned:
            return
        self._ended = True
        with contextlib.suppress(TimeoutError, RuntimeError):  # one that is being started is known afterwards
            self._starter.submit(lambda: None).result(descendants.END_S)
        running = [self.pid(rank) for rank in list(self._children) if self.exit_status(rank) is None]
        left = descendants.end(running, self.folder)
        self._kept.close()
        deadline = time.monotonic() + descendants.SOON_S
        while self.some_live and time.monotonic() < deadline:  # until they are waited for
            time.sleep(0.002)
        self._starter.shutdown(wait=False)
        descendants.check_ended(left, "job")
