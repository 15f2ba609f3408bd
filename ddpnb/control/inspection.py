"""What every rank does, its variables, and whether its replica equals the others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ddpnb import arguments
from ddpnb.control import comparison
from ddpnb.control.comparison import Comparison
from ddpnb.control.live_ranks import ANSWER_S, Ranks
from ddpnb.control.results import Evaluations, FrameDiff, WorldStatus
from ddpnb.errors import WorldError
from ddpnb.files import check_writable
from ddpnb.model import phrases
from ddpnb.model.holds import check_expression
from ddpnb.model.rank_state import RankState
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.observe.observer import Observer
from ddpnb.processes.py_spy import py_spy_stacks
from ddpnb.views import frame_variables
from ddpnb.views.status import RankStatus


class Looks(Ranks):
    """The part of ``World`` that inspects ranks."""

    def _starting(self) -> dict[int, str]:
        """Ranks that are in a start-up step, and what they do in it."""
        raise NotImplementedError

    def snapshot(self) -> Recording:
        """A Recording of this moment: phases, calls in flight, and stacks with the locals of user frames."""
        return self._asked(values=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Recording of this moment to a file: see ``Recording.save()``. ``ddpnb.load()`` reads it.

        Args:
            path: a file that does not exist yet, or is replaced.

        Raises:
            UsageError: the file could not be written there.
            CannotWrite: the disk is full.
        """
        check_writable(path)
        self.snapshot().save(path)

    def status(self) -> WorldStatus:
        """What every rank is doing, one line per rank."""
        with self._lock:
            self._check_open()
            starting = self._starting()
            found = self._states()
        return WorldStatus(
            tuple(RankStatus(o.rank, RankState.STARTING, starting[o.rank]) if o.rank in starting else o for o in found)
        )

    def evaluate(
        self, expression: str, *, ranks: int | Iterable[int] | None = None, frame: int = 0, timeout: float = 5.0
    ) -> Evaluations:
        """Evaluate an expression on ranks: in the current user frame, or on idle ranks with the variables of cells.

        Args:
            expression: Python; it runs on the rank, with all its side effects.
            ranks: which ranks; by default all that are alive.
            frame: 0 for the innermost user frame, 1 for its caller, ...
            timeout: seconds to wait for the result; after that the evaluation continues in its own thread.

        Raises:
            UsageError: not a valid expression.
        """
        check_expression(expression)
        arguments.whole("frame", frame, 0)
        arguments.seconds("timeout", timeout)
        with self._lock:
            self._check_open()
            chosen = self._chosen(ranks)
            content = {"verb": "evaluate", "expression": expression, "frame": frame, "timeout": timeout}
            answers = self._engines.ask(chosen, content, timeout + ANSWER_S)
        return Evaluations.of(expression, chosen, answers)

    def diff(self, frame: int = 0) -> FrameDiff:
        """The variables of the same frame on all ranks, side by side, and which differ.

        Args:
            frame: 0 for the innermost function that most ranks are in, 1 for its caller, ...
        """
        arguments.whole("frame", frame, 0)
        return FrameDiff(frame_variables.side_by_side(self._asked(values=True), frame))

    def compare(self, trace: bool = False) -> Comparison:
        """Compare the replicas on all ranks, tensor by tensor, exactly, without a collective.

        Works while ranks train, wait or hang. If the models no longer exist, the last samples of the run are
        compared (``Comparison.exact`` is then False).

        Args:
            trace: also trace the next forward of all ranks, module by module, and report where it first
                differs. Needs a run in progress.

        Raises:
            WorldError: the World is closed, or a rank is unresponsive.
        """
        with self._lock:
            self._check_open()
            alive = [rank for rank in range(self.size) if self._engines.alive(rank)]
            self._check_hearing(alive)
            run = self._last
        found = comparison.compare(self._engines, alive, trace, moving=run is not None and not run.done)
        if found.compared or run is None:
            return found
        return comparison.of_recording(run.recording or run.observer.record(ask=False))

    def _check_hearing(self, ranks: Sequence[int]) -> None:
        """Fail early if a rank cannot answer; the digests of a large model may take long.

        Raises:
            WorldError: a rank is stopped, or native code holds its GIL.
        """
        stopped, frozen = [rank for rank in ranks if self._engines.stopped(rank)], []
        if not stopped:
            answers = self._engines.ask(ranks, {"verb": "gate"}, ANSWER_S)
            self._engines.check_connection()
            silent = [rank for rank in ranks if rank not in answers]
            stopped = [rank for rank in silent if self._engines.stopped(rank)]  # it takes a moment to stop all threads
            frozen = [
                rank for rank in silent if any(stack.holds_lock for stack in py_spy_stacks(self._engines.pid(rank)))
            ]
        if deaf := stopped or frozen:
            why = "stopped" if stopped else "blocked in native code that holds the GIL"
            hint = f"world.restart({deaf[0]}) replaces it."
            raise WorldError(
                f"{phrases.ranks(deaf, True)} {phrases.verb(deaf, 'is', 'are')} {why}: the replicas cannot be compared.",
                f"kill -CONT {self._engines.pid(deaf[0])} lets it continue; {hint}" if stopped else hint,
            )

    def observer(self) -> Observer:
        """A new Observer of the ranks: it reads their shared memory and never sends them a request."""
        run = self._last if self._in_run else None
        if run is not None:
            return run.another_observer()
        return Observer(self._engines, self._folder, dict.fromkeys(range(self.size), ""), 0)

    def _look(self, *, ask: bool = False) -> Recording:
        if self._in_run and self._last is not None:
            taken = self._last.observer.record(ask=ask, with_locals=False)
            # One that was replaced since has a fresh process, of which that run knows nothing.
            return replace(
                taken, ranks={r: one if r in self._in_run else RankRecord(r) for r, one in taken.ranks.items()}
            )
        return self.observer().record(ask=ask, with_locals=False)

    def _asked(self, *, values: bool) -> Recording:
        with self._lock:
            self._check_open()
            if self._in_run and self._last is not None:
                return self._last.observer.record(values=values)
            return self.observer().record(values=values)

    # -- their processes

    @property
    def processes(self) -> dict[int, tuple[int, bool]]:
        """rank -> (process, whether this process took part in the last run). A replaced process did not."""
        return {rank: (self._engines.pid(rank), rank in self._in_run) for rank in range(self.size)}

    def pids(self) -> list[int]:
        """The process ID of each rank, in rank order."""
        return [self._engines.pid(rank) for rank in range(self.size)]
