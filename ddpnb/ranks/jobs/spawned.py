"""Ranks in plain processes that ddpnb starts, with torchrun's environment: each a fresh interpreter, or forked."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import partial

from ddpnb.errors import WorldError
from ddpnb.ranks import descendants, interpreter
from ddpnb.ranks.exit_reasons import cannot_start
from ddpnb.ranks.forks import ForkServers, NoForks
from ddpnb.ranks.interpreter import Child, StartingThread
from ddpnb.ranks.jobs.job_processes import Identity, JobProcesses
from ddpnb.ranks.jobs.kept_connections import KeptConnections
from ddpnb.ranks.process_samples import GONE, STOPPED, kernel_status
from ddpnb.recording import protocol, status_file
from ddpnb.recording.files import private

START_S = 60.0  # for the system to start one process
# The first rank holds the store. A client that comes before it tries again half a second later (torch 2.13).
_LEAD_S = 0.05


@dataclass(frozen=True, slots=True)
class Program:
    """What a rank runs.

    Attributes:
        script: its path, or the name of a module.
        arguments: those of the script.
        module: it is a module (``python -m``).
    """

    script: str
    arguments: tuple[str, ...] = ()
    module: bool = False

    @property
    def command(self) -> list[str]:
        return [sys.executable, *(["-m"] if self.module else []), self.script, *self.arguments]


class SpawnedProcesses(JobProcesses):
    """One process per rank.

    Args:
        folder: of the job.
        program: what each rank runs.
        logs: for each rank the file that takes its standard output and error.
        directory: in which it runs.
        forks: fork them, which starts them sooner; they share the hash seed of strings. None: each is a new interpreter.
    """

    def __init__(
        self,
        folder: str,
        program: Program,
        logs: Mapping[int, str],
        directory: str,
        forks: ForkServers | None = None,
    ) -> None:
        super().__init__(folder)
        self._program = program
        self._forks = forks
        self._common: dict[str, str] = {}  # variables of all ranks
        self._logs = logs
        self._directory = directory
        self._owner = os.getpid()
        self._children: dict[int, subprocess.Popen[bytes] | Child] = {}
        self._devices: dict[int, str] = {}
        self._waiting = threading.Lock()
        self._ended = False  # what starts now ends at once
        self._kept = KeptConnections(folder)
        self._starter = StartingThread("ddpnb starter")

    def start(self, environments: Mapping[int, dict[str, str]], timeout: float = START_S) -> None:
        """Start a process for each rank; they are found by their identity a little later.

        Raises:
            LaunchError: the system refuses a process.
        """
        self._common = dict(set.intersection(*(set(environment.items()) for environment in environments.values())))
        try:
            for rank, environment in environments.items():
                self._starter.submit(self._begin, rank, environment).result(timeout)
        except (OSError, RuntimeError) as error:
            self.stop()
            raise cannot_start(error) from None

    def _begin(self, rank: int, environment: dict[str, str]) -> None:
        if not self._ended:
            self._devices[rank] = environment.get(protocol.DEVICE, "")
            whole = {**environment, protocol.START: self.folder}
            if self._forks is not None:
                self._fork(self._forks, rank, whole)
            else:
                self._start(rank, whole)
        if self._ended and rank in self._children:  # nobody else knows of it
            self.kill(rank)

    def _start(self, rank: int, environment: dict[str, str]) -> None:
        self._children[rank] = interpreter.start(
            self._program.command, environment, self._logs[rank], directory=self._directory
        )

    def _fork(self, forks: ForkServers, rank: int, environment: dict[str, str]) -> None:
        order = {
            **asdict(self._program),
            "environment": environment,
            "directory": self._directory,
            "log": self._logs[rank],
            "lead_s": 0.0 if self._children else _LEAD_S,
        }
        fork = self._children[rank] = forks.server(self._common, self._directory).fork(order)
        fork.begun.add_done_callback(partial(self._note_fork, rank, environment))

    def _note_fork(self, rank: int, environment: dict[str, str], begun: Future[int]) -> None:
        error = None if begun.cancelled() else begun.exception()
        if isinstance(error, NoForks):
            if self._forks is not None:
                error.warn()
            self._forks = None
            with contextlib.suppress(RuntimeError):  # all have been stopped meanwhile
                self._starter.submit(self._begin, rank, environment).add_done_callback(partial(self._note_start, rank))
        elif error is not None:
            self._note_failure(rank, error)

    def _note_start(self, rank: int, starting: Future[None]) -> None:
        child, error = self._children[rank], starting.exception()
        if error is not None and isinstance(child, Child):
            self._note_failure(rank, error)
            child.ended.set_result(1)

    def _note_failure(self, rank: int, error: BaseException) -> None:
        with contextlib.suppress(OSError), open(self._logs[rank], "a", opener=private) as log:
            log.write(f"ddpnb: {error}\n")

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
        return any(self.pid(rank) and self.exit_status(rank) is None for rank in list(self._children))

    @property
    def is_lost(self) -> bool:
        """Whether they were killed because a process died that has nothing to do with them: it had forked them."""
        return any(isinstance(child, Child) and child.is_lost for child in list(self._children.values()))

    def stopped(self, rank: int) -> bool:
        return kernel_status(self.pid(rank)) in STOPPED

    def exit_status(self, rank: int) -> int | None:
        child = self._children[rank]
        with self._waiting:
            status = child.poll() if self.owned else None
        if status is not None and isinstance(child, Child) and child.is_lost:  # it may have ended before
            left = status_file.read(self.folder, rank).status
            status = status if left is None else left
        return status

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
                if self.exit_status(rank) is None and self.pid(rank):
                    os.killpg(self.pid(rank), number)
                    reached.append(rank)
        return reached

    def kill(self, rank: int) -> None:
        self.check_owner()
        if self._known_to_run(rank):
            descendants.end([self.pid(rank)])

    def _known_to_run(self, rank: int) -> bool:
        """Whether it runs; one that is being forked does not, and is killed as soon as it is there."""
        child = self._children[rank]
        return not (isinstance(child, Child) and child.begun.cancel()) and self.exit_status(rank) is None

    def stop(self) -> None:
        if not self.owned:
            return
        self._ended = True
        with contextlib.suppress(TimeoutError, RuntimeError):  # one that is being started is known afterwards
            self._starter.submit(lambda: None).result(descendants.END_S)
        running = [self.pid(rank) for rank in list(self._children) if self._known_to_run(rank)]
        left = descendants.end(running, self.folder)
        self._kept.close()
        deadline = time.monotonic() + descendants.SOON_S
        while self.some_live and time.monotonic() < deadline:  # until they are waited for
            time.sleep(0.002)
        self._starter.close(0)
        descendants.check_ended(left, "job")
