"""Start-up in steps, release, and the new process group after it."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ddpnb import arguments
from ddpnb.control.breakpoints import Holds
from ddpnb.control.faults import Faulty
from ddpnb.control.release import Freed, release
from ddpnb.control.startup import Startup
from ddpnb.errors import CannotWrite, WorldError
from ddpnb.model import phrases
from ddpnb.model.recording import Recording
from ddpnb.model.startup import STEPS
from ddpnb.observe.observer import Observer
from ddpnb.processes import connections
from ddpnb.processes.devices import Plan
from ddpnb.recorder import protocol

_CLEAN_S = 5.0  # that a rank may take to end what a failed run has left; then its process is replaced


class Starts(Holds, Faulty):
    """The part of ``World`` that creates process groups and releases ranks."""

    fence: str
    plan: Plan
    _number: int  # of the last run or start-up
    _startup: Startup | None
    _started_as: int  # its number among the runs

    def _environment(self, rank: int, port: int) -> dict[str, str]:
        raise NotImplementedError

    def _new_port(self) -> int:
        raise NotImplementedError

    def _check_free(self, ranks: Iterable[int]) -> None:
        """Raise WorldError if one of these ranks is in a run."""
        raise NotImplementedError

    def restart(self, ranks: int | Iterable[int] | None = None, timeout: float = 60.0) -> None:
        raise NotImplementedError

    def init(self, timeout: float = 1800.0) -> Startup:
        """Begin a start-up in steps, from the environment to the first optimizer step; you decide when each runs.

        Functions and cells use the resulting process group; a script creates its own.

        Args:
            timeout: time-out of the store and of the process group, in seconds.

        Raises:
            WorldError: the world is closed, or a rank is dead or in a run.
            CannotWrite: no space for the logs.
        """
        arguments.seconds("timeout", timeout)
        with self._lock:
            self._check_open()
            dead = [rank for rank in range(self.size) if not self._alive(rank)]
            if dead:
                raise WorldError(
                    f"{phrases.ranks(dead, True)} {phrases.verb(dead, 'is', 'are')} dead.",
                    f"world.restart({dead[0]}) replaces it.",
                )
            self._check_free(range(self.size))
            left = self._not_cleaned(range(self.size))
            if left:
                self.restart(left)
            number = self._number = self._number + 1
            port = self._new_port()
            folder = self._folders.log_dir(number)
            try:
                os.makedirs(folder, exist_ok=True)
            except OSError as error:
                raise CannotWrite(
                    f"the start-up cannot begin: cannot create its log folder {folder}: {error.strerror}.",
                    "Free some space in TMPDIR.",
                ) from None
            order = {"run": number, "fence": self.fence, "backend": self.plan.backend, "timeout": timeout}
            armed = self._armed(range(self.size))

            def begin(rank: int) -> Any:
                return self._engines.call(rank, protocol.start_up, order | armed[rank])

            begun = [begin(rank) for rank in range(self.size)]
            self._wait_begun(begun)

            logs = {rank: os.path.join(folder, f"rank{rank}.log") for rank in range(self.size)}

            def make(rank: int, step: str) -> Any:
                told: dict[str, Any] = {"step": step, "log": logs[rank]}
                told |= {"environment": {**self._environment(rank, port), **self._variables(rank)}}
                return self._engines.call(rank, protocol.start_up, order | told)

            self._startup = Startup(self.size, begin, make, self._alive, logs, self._stopped)
            weakref.finalize(self._startup, self._folders.forget, number).atexit = False
            self._started_as = number
            self._in_run.clear()
            return self._startup

    def _wait_begun(self, begun: Sequence[Any]) -> None:
        """Wait until each rank has begun the start-up.

        Raises:
            WorldError: a rank did not begin it.
        """
        deadline = time.monotonic() + _CLEAN_S * 4
        for rank, answer in enumerate(begun):
            while not answer.ready():
                if not self._alive(rank) or self._stopped(rank) or time.monotonic() > deadline:
                    self._engines.check_connection()
                    what = "is stopped" if self._stopped(rank) else "does not answer" if self._alive(rank) else "died"
                    raise WorldError(
                        f"rank {rank} {what}: the start-up did not begin.", f"world.restart({rank}) replaces it."
                    )
                answer.wait(0.05)
            try:
                answer.get(timeout=0)
            except Exception as error:
                raise WorldError(
                    f"rank {rank} could not begin the start-up: {str(error)[:400]}.",
                    f"world.restart({rank}) replaces it.",
                ) from None

    @property
    def startup(self) -> Startup | None:
        """The last start-up in steps; None if there was none, or a script has run since."""
        return self._startup

    def startup_recording(self) -> Recording:
        """The Recording of the start-up in steps."""
        with self._lock:
            self._check_open()
            outcomes = dict.fromkeys(range(self.size), "")
            return Observer(self._engines, self._folder, outcomes, self._started_as).record(ask=False)

    def rebuild(self, timeout: float = 30.0) -> Startup:
        """Create a new process group in the same processes, after a release or at any other time.

        Models of cells that are wrapped in ``DistributedDataParallel`` on the default group use the new one.
        Create groups of ``new_group()`` again.

        Args:
            timeout: seconds to wait at most.

        Raises:
            WorldError: a rank is dead or in a run, or the group could not be created.
        """
        arguments.seconds("timeout", timeout)
        startup = self.init().run("first barrier", timeout)
        if startup.state.stopped_at in STEPS[: STEPS.index("first barrier") + 1]:
            why = "; ".join(startup.notes())
            lost = [rank for rank in range(self.size) if not self._alive(rank) or self._stopped(rank)]
            if lost:
                self.release(_CLEAN_S)  # the others wait for these in vain
            hint = (
                f"world.restart({lost[0] if len(lost) == 1 else lost}), then world.rebuild()."
                if lost
                else ("Call world.release(), then world.rebuild() again; world.restart() replaces the ranks that wait.")
            )
            raise WorldError(f"failed to create the process group: {why}.", hint)
        return startup

    def release(self, timeout: float = 10.0) -> Freed:
        """Interrupt ranks that hang, wait, are held or compute: the exception ``Released`` ends what they run.

        Their processes, variables and models are kept. ``rebuild()`` creates a new process group.

        Args:
            timeout: seconds to wait; the result names the ranks that were not released by then.
        """
        arguments.seconds("timeout", timeout, least=0)
        with self._lock:
            self._check_open()
            busy = [rank for rank in self._busy() if self._alive(rank)]
            if not busy:
                return Freed()
            with self._runs_released():
                everybody = [rank for rank in range(self.size) if self._alive(rank)]
                found = release(
                    self._engines,
                    everybody,
                    lambda: [rank for rank in self._busy() if self._alive(rank)],
                    "released by world.release()",
                    timeout,
                )
            self._held = [one for one in self._held if one[1]]
            self._hurry(deaf=found.left)
        return found

    @contextmanager
    def _runs_released(self) -> Iterator[None]:
        """Around a release: fix the verdict before it, show the output after it."""
        runs = {self._in_run[rank] for rank in self._busy() if rank in self._in_run}
        for run in runs:
            run.settle(released=True)
        yield
        for run in runs:
            run.show_rest()
        if self._startup is not None:
            self._startup.cut()

    def _starting(self) -> dict[int, str]:
        if self._startup is None:
            return {}
        sentences = self._startup.sentences()
        return {rank: sentences[rank] for rank in self._startup.busy()}

    def _not_cleaned(self, ranks: Iterable[int]) -> list[int]:
        """Clean up what a failed run left on these ranks; returns the ranks on which this failed."""
        alive = [rank for rank in ranks if self._alive(rank) and rank not in self._busy()]
        between = connections.between([self._engines.pid(rank) for rank in range(self.size) if self._alive(rank)])
        contents = {r: {"verb": "cut", "connections": between.get(self._engines.pid(r), [])} for r in alive}
        heard = self._engines.ask_each(contents, _CLEAN_S)
        answers = {rank: self._engines.call(rank, protocol.clean) for rank in heard}
        deadline = time.monotonic() + _CLEAN_S
        for answer in answers.values():
            answer.wait(max(0.0, deadline - time.monotonic()))
        cleaned = {rank for rank, answer in answers.items() if answer.ready() and answer.successful()}
        for rank in cleaned:
            self._in_run.pop(rank, None)
        return [rank for rank in ranks if rank not in cleaned]

    def _armed(self, ranks: Iterable[int]) -> dict[int, dict[str, Any]]:
        """The holds and faults to send to each of these ranks with its next order."""
        told: dict[int, dict[str, Any]] = {
            rank: {
                "holds": [(one.hold.to_json(), keep) for one, keep in self._held if rank in one.ranks],
                "faults": [
                    (one.fault.to_json(), keep)
                    for one, keep, there in self._injected
                    if rank in one.ranks and rank not in there and one.fault.description.place != "environment"
                ],
            }
            for rank in ranks
        }
        self._held = [one for one in self._held if one[1]]
        self._injected = [
            (one, keep, there | {*told})
            for one, keep, there in self._injected
            if keep or one.fault.description.place == "environment"
        ]
        return told
