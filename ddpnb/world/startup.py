"""Start-up, step by step: on each rank when you choose, with what it waits for; failed steps can be repeated."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ddpnb.errors import UsageError, WorldError
from ddpnb.ranks.observe import logs
from ddpnb.recording import arguments
from ddpnb.recording.startup import STEPS, StartupState, StepState
from ddpnb.render.document import Block
from ddpnb.render.shown import Shown
from ddpnb.render.startup import document
from ddpnb.render.views import startup_waits
from ddpnb.texts import printable, shortened

_TICK_S = 0.005
_STILL_S = 0.3  # how long to wait for a step that waits for ranks which are not in one


class Startup(Shown):
    """The start-up of the ranks in steps. Made by ``World.init``.

    ``step()`` makes the next step on ranks, ``run()`` all remaining steps. A step that waits for missing ranks
    keeps waiting until they join or ``World.release()`` ends it. After a failure, fix the cause and call
    ``step()`` to repeat the step.
    """

    _label = "start-up of the ranks"

    def __init__(
        self,
        size: int,
        begin: Callable[[int], Any],
        order: Callable[[int, str], Any],
        alive: Callable[[int], bool],
        logs: Mapping[int, str],
        stopped: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._size = size
        self._logs = logs
        self._begin = begin
        self._order = order
        self._alive = alive
        self._is_stopped = stopped
        self._ended: dict[int, dict[str, StepState]] = {rank: {} for rank in range(size)}
        self._going: dict[int, tuple[str, Any, float]] = {}
        self._lock = threading.RLock()  # each reader takes answers too

    # -- what it is

    @property
    def state(self) -> StartupState:
        """The current state of all steps on all ranks."""
        with self._lock:
            self._take()
            ranks: dict[int, dict[str, StepState]] = {rank: dict(steps) for rank, steps in self._ended.items()}
            for rank, (step, _, began) in self._going.items():
                ranks[rank][step] = StepState("running", time.monotonic() - began)
        dead = tuple(rank for rank in range(self._size) if not self._alive(rank))
        stopped = tuple(rank for rank in range(self._size) if rank not in dead and self._is_stopped(rank))
        return StartupState(self._size, ranks, dead, stopped)

    @property
    def done(self) -> bool:
        """Whether all steps are done on all ranks."""
        return self.state.done

    def busy(self) -> list[int]:
        """The ranks that are in a step now.

        Returns:
            Ranks, in order.

        Example:
            >>> world.startup.busy()
            [0, 2]
        """
        with self._lock:
            self._take()
            return sorted(rank for rank in self._going if self._alive(rank))

    def facts(self, step: str) -> dict[int, dict[str, Any]]:
        """The facts that a step recorded.

        Args:
            step: name of a step, such as ``"store"``.

        Returns:
            rank -> name -> value.

        Raises:
            UsageError: unknown step.

        Example:
            >>> world.startup.facts("device")[1]["device"]
            'cuda:1'
        """
        state = self.state
        return {rank: dict(state.at(rank, _known(step)).facts) for rank in range(self._size)}

    def _cut(self) -> None:
        """The connections were closed: steps from the store on must be repeated."""
        with self._lock:
            self._take()
            for steps in self._ended.values():
                for step in STEPS[STEPS.index("store") :]:
                    if step in steps and steps[step].state == "done":
                        del steps[step]

    def _replaced(self, rank: int) -> None:
        """The rank has a new process: it starts again at the first step."""
        with self._lock:
            self._going.pop(rank, None)
            self._ended[rank] = {}
        self._begin(rank)

    def log(self, rank: int) -> str:
        """The output of this rank during the start-up.

        Args:
            rank: a rank of the World.

        Returns:
            Standard output and error, as text.

        Raises:
            UsageError: unknown rank.

        Example:
            >>> print(world.startup.log(1))
        """
        return logs.whole(self._logs[arguments.member("rank", rank, self._logs)])

    # -- what one does with it

    def step(self, ranks: int | Iterable[int] | None = None, timeout: float = 10.0) -> Startup:
        """Make the next step (the failed one again) on these ranks.

        Args:
            ranks: which ranks; by default all that are furthest behind.
            timeout: seconds to wait at most. Returns as soon as these ranks have ended the step, or they are
                known to wait for ranks that are not in it.

        Returns:
            This start-up.

        Raises:
            UsageError: unknown rank.
            WorldError: one of these ranks is dead, or still in a step.

        Example:
            >>> world.init().step(ranks=[0, 1])
        """
        arguments.seconds("timeout", timeout, least=0)
        self._start(ranks)
        self._settle(timeout)
        return self

    def run(self, upto: str = STEPS[-1], timeout: float = 60.0) -> Startup:
        """Make all steps up to this one on all ranks; stops if a rank fails or is blocked.

        Args:
            upto: name of the last step.
            timeout: seconds for all of it.

        Returns:
            This start-up; ``state.stopped_at`` is the first step that is not done.

        Raises:
            UsageError: unknown step.

        Example:
            >>> world.init().run("first barrier").state.stopped_at
            'first all-reduce'
        """
        arguments.seconds("timeout", timeout)
        last = STEPS.index(_known(upto))
        deadline = time.monotonic() + timeout
        while (step := self.state.stopped_at) is not None and STEPS.index(step) <= last:
            self._start(None)
            self._settle(deadline - time.monotonic())
            if any(self.state.at(rank, step).state != "done" for rank in range(self._size)):
                break
        return self

    def _start(self, ranks: int | Iterable[int] | None) -> None:
        with self._lock:
            for rank, name in self._next(ranks).items():
                self._going[rank] = name, self._order(rank, name), time.monotonic()

    def _next(self, ranks: int | Iterable[int] | None) -> dict[int, str]:
        state = self.state
        if ranks is None:
            behind = state.stopped_at
            return {
                rank: behind
                for rank in range(self._size)
                if behind is not None
                and state.next_of(rank) == behind
                and rank not in self._going
                and rank not in state.dead
            }
        found: dict[int, str] = {}
        for rank in arguments.ranks(ranks, self._size):
            if rank in state.dead:
                raise WorldError(f"rank {rank} is dead.", f"world.restart({rank}) replaces it.")
            if rank in self._going and rank in state.stopped:
                raise WorldError(f"rank {rank} is stopped.", f"world.restart({rank}) replaces it.")
            if rank in self._going:
                raise WorldError(
                    f"rank {rank} {startup_waits.sentence(state, rank)}.",
                    "Step the ranks that it waits for, or release it with world.release().",
                )
            name = state.next_of(rank)
            if name is not None:
                found[rank] = name
        return found

    def _settle(self, wait: float) -> None:
        """Wait until no step is running, except those that wait for ranks which are not in a step."""
        deadline = time.monotonic() + wait
        still: float | None = None
        while time.monotonic() < deadline:
            state = self.state
            begun = [rank for rank in list(self._going) if rank not in state.dead]
            going = [rank for rank in begun if rank not in state.stopped]
            if not going:
                return
            stopped = len(going) < len(begun)  # it has come to its step by the state, and cannot end it
            absent = all(
                set(startup_waits.needs(state, rank)) - set(going) or (stopped and startup_waits.meets(state, rank))
                for rank in going
            )
            if not absent:
                still = None
            elif still is None:
                still = time.monotonic()
            elif time.monotonic() - still >= _STILL_S:
                return
            time.sleep(_TICK_S)

    def _take(self) -> None:
        """Collect the answers that have arrived."""
        for rank, (step, answer, began) in list(self._going.items()):
            if not answer.ready():
                continue
            del self._going[rank]
            try:
                told: Mapping[str, Any] = answer.get()
            except Exception as error:  # of the engine, not of the step: it never raises
                told = {"state": "failed", "error": shortened(f"{type(error).__name__}: {error}", 400)}
            self._ended[rank][step] = StepState(
                "done" if told.get("state") == "done" else "failed",
                float(told.get("seconds", time.monotonic() - began)),
                dict(told.get("facts", {})),
                str(told.get("error", "")),
            )

    # -- how it is shown

    def sentences(self) -> dict[int, str]:
        """What each rank does.

        Returns:
            rank -> the rest of a sentence.

        Example:
            >>> world.startup.sentences()[1]
            'waits in first barrier for 2 of 4 ranks: 2 and 3'
        """
        state = self.state
        return {rank: startup_waits.sentence(state, rank) for rank in range(self._size)}

    def notes(self) -> list[str]:
        """What the ranks do, and in which facts they differ.

        Returns:
            Lines of text.

        Example:
            >>> world.startup.notes()
            ['rank 0: waits in first barrier for 1 of 2 ranks: 1', 'rank 1: ready for first barrier']
        """
        return [printable(note) for note in startup_waits.notes(self.state)]

    def _document(self) -> list[Block]:
        return document(self.state)


def _known(step: str) -> str:
    if not isinstance(step, str) or step not in STEPS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"unknown step {arguments.short(step)}.", f"The steps are: {', '.join(STEPS)}.")
    return step
