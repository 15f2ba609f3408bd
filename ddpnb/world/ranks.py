"""Ranks: their processes, the run that each is in, and requests to them."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from ddpnb.errors import DdpnbError, WorldError
from ddpnb.ranks.devices import Plan
from ddpnb.ranks.engines.early import Early
from ddpnb.ranks.environment import Port, ReservedPort, rank_environment
from ddpnb.ranks.observe.observer import Observer
from ddpnb.ranks.rank_processes import OwnedRanks, RankView
from ddpnb.recording import arguments, phrases, protocol, verbs
from ddpnb.recording.progress import Progress
from ddpnb.recording.verbs import A, OfARun, Request
from ddpnb.world.group_state import ClosedGroup, States
from ddpnb.world.run import Run
from ddpnb.world.run_monitor import RunMonitor
from ddpnb.world.startup import Startup

ANSWER_S = 2.0  # how long a rank may take to answer on the control channel
_GROUPS_S = 10.0  # the same, where it looks through all its objects
_RUNS = 12  # with their Recordings and logs: older ones are freed, unless somebody holds them
_LOCK_S = 5.0  # how long close() waits for another thread that uses the ranks


class Ranks:
    """Ranks and the run that each is in. ``lock`` guards the public methods of ``LiveRanks``.

    Args:
        size: number of ranks.
        processes: of the ranks.
        memory: the folder with their black boxes.
        description: ``4 ranks, gloo, cpu``.
    """

    def __init__(self, size: int, processes: RankView, memory: str, description: str) -> None:
        self.size = size
        self.processes = processes
        self.memory = memory
        self.description = description
        self.number = 0  # of the last run or start-up
        self.last_run: Run | None = None
        self.runs: deque[Run] = deque(maxlen=_RUNS)
        self.last_monitor: RunMonitor | None = None
        self.in_run: dict[int, RunMonitor] = {}  # the run that each rank's process was last in
        self.monitors: weakref.WeakSet[RunMonitor] = weakref.WeakSet()
        self.startup: Startup | None = None
        self.startup_number = 0  # its number among the runs
        self.closed_group: ClosedGroup | None = None  # that the next cell or function must create again
        self.half_released = False  # hosts did not answer: their ranks may have heard a part of the last release
        self.unused_port: ReservedPort | None = None  # for faults: no store listens on it
        self.lock = threading.RLock()
        self.closed = False

    @property
    def backend(self) -> str:
        """The backend of a process group that is created again; empty for ranks that another program has started."""
        return ""

    def begun(self, monitor: RunMonitor) -> Run:
        """A run has begun on the ranks of this monitor."""
        self.monitors.add(monitor)
        self.last_monitor, self.last_run = monitor, Run(monitor)
        self.runs.append(self.last_run)
        self.in_run.update(dict.fromkeys(monitor.ranks, monitor))
        return self.last_run

    def close(self) -> None:
        """Stop monitoring; the ranks are not touched."""
        free = self.lock.acquire(timeout=_LOCK_S)
        self.closed = True
        if free:
            self.lock.release()
        for monitor in list(self.monitors):
            monitor.stop_watching()

    @property
    def members(self) -> dict[int, tuple[int, bool]]:
        """rank -> (process ID, whether this process took part in the last run). A replaced process did not."""
        return {rank: (self.processes.pid(rank), rank in self.in_run) for rank in range(self.size)}

    def observer(self) -> Observer:
        """A new Observer of the ranks: it reads their shared memory and never sends them a request."""
        if self.in_run and self.last_monitor is not None:
            return self.last_monitor.another_observer()
        return self.idle_observer(0)

    def idle_observer(self, number: int) -> Observer:
        """An Observer of a start-up with this number, or with 0 of ranks that are in no run."""
        return Observer(self.processes, self.memory, dict.fromkeys(range(self.size), ""), number)

    # -- which of them

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the lock; WorldError if the World is or becomes closed, or its controller does not run."""
        with self.lock:
            self._check_open()
            self.processes.check_connection()
            try:
                yield
            except DdpnbError:
                self._check_open()  # what it says of ranks that the end of the World has ended is no cause
                raise

    def _check_open(self) -> None:
        if self.closed:
            raise WorldError("this world is closed.", "Launch a new one: ddpnb.launch(n).") from None

    def alive(self) -> list[int]:
        """The ranks whose processes are alive."""
        return [rank for rank in range(self.size) if self.processes.alive(rank)]

    def busy(self) -> list[int]:
        """The ranks that are in a run or in a start-up step."""
        in_run = [rank for rank, monitor in self.in_run.items() if monitor.is_in(rank)]
        return sorted({*in_run, *(self.startup.busy() if self.startup is not None else [])})

    def check_free(self, ranks: Iterable[int]) -> None:
        """Raise WorldError if one of these ranks is busy."""
        busy = [rank for rank in self.busy() if rank in ranks]
        if not busy:
            return
        monitor = self.in_run.get(busy[0])
        what = f"run {monitor.number} ({monitor.outcome})" if monitor is not None else "start-up"
        raise WorldError(
            f"{phrases.ranks(busy, True)} {phrases.verb(busy, 'is', 'are')} still in {what}.",
            "Look at it with world.snapshot(); world.release() frees these ranks, world.restart() replaces them.",
        )

    def check_alive(self, ranks: Iterable[int]) -> None:
        """Raise WorldError if one of these ranks is dead, or all ranks of a job have ended."""
        if self.processes.ends_with_script and not self.alive():
            raise WorldError(
                "this job has ended: no rank is left.",
                "job.diagnosis says how. Start it again, and attach while it runs; ddpnb run --keep keeps a job that hangs.",
            )
        dead = [rank for rank in ranks if not self.processes.alive(rank)]
        self._check_joined(dead)
        if dead:
            raise WorldError(
                f"{phrases.ranks(dead)} {phrases.verb(dead, 'is', 'are')} dead.",
                self.replaces(dead[0]),
            )

    def check_joined(self) -> None:
        """Raise WorldError while a process may still become a rank: what is now asked of all would not reach that one."""
        absent = [rank for rank in range(self.size) if not self.processes.joined(rank)]
        if absent and self.alive() and self.processes.may_come():
            self._check_joined(absent)

    def _check_joined(self, ranks: Iterable[int]) -> None:
        absent = [rank for rank in ranks if not self.processes.joined(rank)]
        if absent:
            raise WorldError(
                f"{phrases.ranks(absent)} {phrases.verb(absent, 'has', 'have')} not joined yet.",
                "Try again in a moment, or name ranks that have joined, such as ranks=[N].",
            )

    def replaces(self, rank: int) -> str:  # noqa: ARG002
        """What to do about the process of a rank that is of no more use."""
        return "The ranks of a job cannot be replaced: end the job, and start it again."

    def chosen(self, ranks: int | Iterable[int] | None) -> tuple[int, ...]:
        """These ranks, or all that are alive.

        Raises:
            UsageError: unknown rank.
            WorldError: one of these ranks is dead, or all are, or its host does not answer.
        """
        if ranks is None:
            self.check_alive(() if (alive := self.alive()) else range(self.size))
            return tuple(alive)
        wanted = arguments.ranks(ranks, self.size)
        self.check_alive(wanted)
        self.processes.check_heard(wanted)
        return wanted

    # -- requests to them

    def ask(self, ranks: Sequence[int], request: Request[A], timeout: float = ANSWER_S) -> dict[int, A]:
        """Send a request to ranks; the answers of those that answered in time."""
        return self.processes.ask(ranks, request, timeout)

    def groups(self, ranks: Sequence[int]) -> States:
        """The process groups of these ranks, which are idle; None for a rank that does not say."""
        answers = self.ask(ranks, verbs.Group(), _GROUPS_S)
        return {rank: told if (told := answers.get(rank)) is not None and not told.error else None for rank in ranks}

    def send(self, ranks: Sequence[int], request: Request[A]) -> Mapping[int, A]:
        """Send a request to ranks and wait for their answers. Ranks that have not begun their run apply it then.

        Raises:
            WorldError: a rank is unresponsive.
        """
        answers = self._send(ranks, request)
        silent = [rank for rank in ranks if rank not in answers]
        if silent:
            self.processes.check_connection()
            self.processes.check_heard(silent, asked=True)
            stopped = [rank for rank in silent if self.processes.stopped(rank)]
            why = f" ({phrases.ranks(stopped)} {phrases.verb(stopped, 'is', 'are')} stopped)" if stopped else ""
            raise WorldError(
                f"{phrases.ranks(silent, True)} {phrases.verb(silent, 'is', 'are')} unresponsive{why}.",
                self.replaces(silent[0]),
            )
        check_refused(answers)
        return answers

    def send_all(self, request: Request[A]) -> Mapping[int, A]:
        """Send a request to all ranks that are alive; ignore missing answers."""
        return self._send(self.alive(), request)

    def _send(self, ranks: Sequence[int], request: Request[A]) -> Mapping[int, A]:
        """Send the request to each rank, for the run that it is in or about to begin."""
        return self.processes.ask_each({rank: self._for_run(rank, request) for rank in ranks}, ANSWER_S)

    def _for_run(self, rank: int, request: Request[A]) -> Request[A]:
        monitor = self.in_run.get(rank)
        if not isinstance(request, OfARun) or monitor is None or not monitor.is_in(rank):
            return cast("Request[A]", request)
        return cast("Request[A]", replace(request, run=monitor.number))


def check_refused(answers: Mapping[int, verbs.Done]) -> None:
    """Raise WorldError if a rank has refused a request."""
    refused = next((answer.error for answer in answers.values() if answer.error), None)
    if refused is not None:
        raise WorldError(f"a rank refused the request: {refused}.")


class OwnRanks(Ranks):
    """The ranks of a World, which it starts and ends.

    Args:
        plan: the device of each rank.
        processes: of the ranks.
        early: what they need and what was started already, of the same plan; these ranks take it over.
        port, quiet: as for ``launch()``.
    """

    def __init__(self, plan: Plan, processes: OwnedRanks, early: Early, *, port: int | None, quiet: bool) -> None:
        super().__init__(len(plan.devices), processes, early.folders.memory, plan.description)
        self.plan = plan
        self.engines = processes
        self.folders, self.unused_port = early.folders, early.unused_port
        self.launch_s = 0.0
        self.quiet = quiet
        self._port = port
        self._early = early
        self._reserved: Port | None = early.port
        early.hand_over()

    @property
    def backend(self) -> str:
        return self.plan.backend

    # -- their processes

    def replaces(self, rank: int) -> str:
        return f"world.restart({rank}) replaces it."

    def start(self, timeout: float) -> None:
        """Start the processes.

        Raises:
            LaunchError: a process did not start.
        """
        with Progress(f"starting {self.plan.description}", self.size, self.quiet) as progress:
            self.engines.progress = progress.update
            self.engines.prepare(self.folders.memory, timeout)
            environments = self._early.environments
            if not environments:
                port = self.new_port()
                environments = {rank: self.environment(rank, port) for rank in range(self.size)}
            self.engines.start(environments, timeout)
        self.launch_s = time.monotonic() - self._early.began

    def environment(self, rank: int, port: int) -> dict[str, str]:
        """The environment variables of a rank's process; ``port``: MASTER_PORT."""
        return {
            **rank_environment(self.plan, rank, port, self._early.debugging, self.engines.address),
            protocol.FOLDER: self.folders.memory,
        }

    def new_port(self) -> int:
        """The MASTER_PORT of the next run."""
        if self._port is not None:
            return self._port
        if self._reserved is not None:
            self._reserved.release()
        self._reserved = self.engines.reserve_port()
        return self._reserved.port

    def close(self) -> None:
        """End the processes and remove the temporary files.

        Raises:
            WorldError: a process did not end.
        """
        free = self.lock.acquire(timeout=_LOCK_S)
        try:
            if self.closed:
                return
            self.closed = True
        finally:
            if free:
                self.lock.release()
        for monitor in list(self.monitors):
            monitor.stop_watching()
        try:
            self.engines.stop()
        finally:
            for reserved in (self._reserved, self.unused_port):
                if reserved is not None:
                    reserved.release()
            self.folders.remove()
