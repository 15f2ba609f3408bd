"""What every rank does, its variables, and whether its replica equals the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ddpnb.errors import WorldError
from ddpnb.ranks.observe.observer import Observer
from ddpnb.recording import arguments, phrases, verbs
from ddpnb.recording.holds import check_expression
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.render.parting import Partings, partings
from ddpnb.render.source_lines import SourceLines, lines
from ddpnb.render.views import frame_variables
from ddpnb.render.views.frame_variables import SideBySide
from ddpnb.render.views.status import RankStatus, status
from ddpnb.world import comparison, tensors
from ddpnb.world.comparison import Comparison
from ddpnb.world.ranks import ANSWER_S, Ranks
from ddpnb.world.results import Evaluations, FrameDiff, WorldStatus
from ddpnb.world.tensors import TensorByRank


class Inspection:
    """Reads the state of live ranks."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def snapshot(self) -> Recording:
        """See ``World.snapshot``."""
        with self._ranks.lock:
            self._ranks.check_open()
            observer, startup = self._observer(), self._ranks.startup
            recording = observer.with_account(observer.record())
            return replace(recording, startup=startup.state if startup is not None else None)

    def status(self) -> WorldStatus:
        """See ``World.status``."""
        with self._ranks.lock:
            self._ranks.check_open()
            startup = self._ranks.startup
            sentences = startup.sentences() if startup is not None else {}
            starting = startup.busy() if startup is not None else ()
            states = self.states()
        return WorldStatus(
            tuple(
                RankStatus(s.rank, RankState.STARTING, sentences[s.rank]) if s.rank in starting else s for s in states
            )
        )

    def evaluate(self, expression: str, ranks: int | Iterable[int] | None, frame: int, timeout: float) -> Evaluations:
        """See ``World.evaluate``."""
        check_expression(expression)
        arguments.whole("frame", frame, 0)
        arguments.seconds("timeout", timeout)
        with self._ranks.lock:
            self._ranks.check_open()
            chosen = self._ranks.chosen(ranks)
            request = verbs.Evaluate(expression=verbs.LongText(expression), frame=frame, timeout=timeout)
            answers = self._ranks.ask(chosen, request, timeout + ANSWER_S)
        return Evaluations.of(expression, chosen, answers)

    def diff(self, frame: int, name: str) -> FrameDiff:
        """See ``World.diff``."""
        arguments.whole("frame", frame, 0)
        arguments.text("name", name)
        with self._ranks.lock:
            self._ranks.check_open()
            recording = self._observer().record(values=True)
            in_thread = (one.rank for one in recording.ranks.values() if one.shown_stack is not one.main_stack)
            frames = frame_variables.side_by_side(recording, frame, next(in_thread, None))
            return FrameDiff(frames if frames is None or not name else self.open(frames, name))

    def open(self, frames: SideBySide, name: str) -> SideBySide:
        """What is inside a variable of a function that ranks are in; ``name``: see ``World.diff``."""
        file, path = map(verbs.LongText, (next(iter(frames.sites.values())).file, name))
        request = verbs.Open(file=file, function=frames.function, path=path)
        with self._ranks.lock:
            self._ranks.check_open()
            return frame_variables.opened(frames, name, self._ranks.ask(list(frames.sites), request))

    def compare(self, *, trace: bool) -> Comparison:
        """See ``World.compare``."""
        with self._ranks.lock:
            self._ranks.check_open()
            alive = self._ranks.alive()
            self._check_responsive(alive)
            run = self._ranks.last_monitor
        moving = run is not None and not run.known.is_set()
        try:
            live = comparison.compare(self._ranks.processes, alive, trace, moving=moving)
        except WorldError:
            self._check_responsive(alive)  # a rank may have been stopped since
            raise
        if run is None:
            return live
        recording = run.recording or run.observer.record(ask=False)
        found = live if live.compared else comparison.of_recording(recording)
        return found if found.equal else replace(found, notes=(*found.notes, *comparison.injected(recording)))

    def lines(self, file: str | None, window: int | str) -> SourceLines:
        """See ``World.lines``."""
        with self._ranks.lock:
            self._ranks.check_open()
            recording = self._observer().record(ask=False)
        return lines(recording, file, window)

    def partings(self) -> Partings:
        """See ``World.partings``."""
        return partings(self.snapshot())

    def tensor(self, name: str, frame: int | None, ranks: int | Iterable[int] | None, timeout: float) -> TensorByRank:
        """See ``World.tensor``."""
        return tensors.tensor(self._ranks, name, frame, ranks, timeout)

    def tensor_names(self, frame: int | None) -> tuple[str, ...]:
        """See ``World.tensor_names``."""
        return tensors.names(self._ranks, frame)

    def states(self) -> tuple[RankStatus, ...]:
        """What every rank is doing in its run."""
        recording = self._look()
        states = status(recording)
        if any(s.state is RankState.BLOCKED and recording.ranks[s.rank].in_flight for s in states):
            states = status(self._look(ask=True))  # only its stack shows that it waits in torch for one of its calls
        return states

    def _observer(self) -> Observer:
        """The observer of the last run, which knows more than a new one."""
        if self._ranks.in_run and self._ranks.last_monitor is not None:
            return self._ranks.last_monitor.observer
        return self._ranks.observer()

    def _look(self, *, ask: bool = False) -> Recording:
        """A Recording of this moment; ``ask``: with the ranks' own stacks."""
        asks = ask or not self._ranks.processes.recorded
        recording = self._observer().record(ask=asks, with_locals=False, follow=False)
        if not self._ranks.in_run:
            return recording
        # A rank that was replaced has a new process, which was not in that run.
        in_run = {rank: r if rank in self._ranks.in_run else RankRecord(rank) for rank, r in recording.ranks.items()}
        return replace(recording, ranks=in_run)

    def _check_responsive(self, ranks: Sequence[int]) -> None:
        """Fail early if a rank cannot answer; the digests of a large model may take long.

        Raises:
            WorldError: a rank is stopped, or native code holds its GIL.
        """
        processes, outside = self._ranks.processes, self._ranks.processes.outside()
        stopped, frozen = [rank for rank in ranks if processes.stopped(rank)], []
        if not stopped:
            answers = self._ranks.ask(ranks, verbs.Gate())
            processes.check_connection()
            silent = [rank for rank in ranks if rank not in answers]
            stopped = [rank for rank in silent if processes.stopped(rank)]  # it takes a moment to stop all threads
            frozen = [rank for rank in silent if any(stack.holds_lock for stack in outside.stacks(rank))]
        if unresponsive := stopped or frozen:
            why = "stopped" if stopped else "blocked in native code that holds the GIL"
            hint = self._ranks.replaces(unresponsive[0])
            raise WorldError(
                f"{phrases.ranks(unresponsive, True)} {phrases.verb(unresponsive, 'is', 'are')} {why}: the replicas "
                "cannot be compared.",
                f"kill -CONT {processes.pid(unresponsive[0])} lets it continue. {hint}" if stopped else hint,
            )
