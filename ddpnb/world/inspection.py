"""What one sees of live ranks, however they were started: what each does, its variables, and whether its replica equals the others."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from ddpnb.errors import WorldError
from ddpnb.recording import arguments, verbs
from ddpnb.recording.files import check_writable
from ddpnb.recording.holds import check_expression
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Recording
from ddpnb.render import parting, source_lines
from ddpnb.render import stacks as merged
from ddpnb.render.parting import Partings
from ddpnb.render.source_lines import SourceLines
from ddpnb.render.stacks import Stacks
from ddpnb.render.views import frame_variables
from ddpnb.render.views.frame_variables import SideBySide
from ddpnb.render.views.status import RankStatus
from ddpnb.world import comparison, looks, tensors
from ddpnb.world.comparison import Comparison
from ddpnb.world.ranks import ANSWER_S, Ranks
from ddpnb.world.results import Evaluations, FrameDiff, WorldStatus
from ddpnb.world.run import Run
from ddpnb.world.startup import Startup
from ddpnb.world.tensors import TensorByRank


class InspectedRanks:
    """Ranks that are looked at; nothing here changes what they do, but for what ``evaluate()`` runs."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    # -- what they are

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._ranks.size

    @property
    def closed(self) -> bool:
        """Whether ``close()`` has been called."""
        return self._ranks.closed

    @property
    def last_run(self) -> Run | None:
        """The last run that was started; None if there was none."""
        return self._ranks.last_run

    @property
    def runs(self) -> list[Run]:
        """The last runs, at most 12, in the order in which they began. ``ddpnb.compare_runs()`` compares two."""
        return list(self._ranks.runs)

    @property
    def startup(self) -> Startup | None:
        """The last start-up in steps (see ``init()``); None if there was none, or a script has run since."""
        return self._ranks.startup

    def pids(self) -> list[int]:
        """The process of each rank.

        Returns:
            Process IDs, in rank order.

        Example:
            >>> world.pids()
            [4711, 4712]
        """
        return [self._ranks.processes.pid(rank) for rank in range(self.size)]

    def status(self) -> WorldStatus:
        """What every rank is doing, one line per rank.

        Returns:
            A table; ``status[rank].state`` is one word.

        Raises:
            WorldError: the World is closed.

        Example:
            >>> world.status()[1].state
            'waiting'
        """
        with self._ranks.opened():
            startup = self._ranks.startup
            sentences = startup.sentences() if startup is not None else {}
            starting = startup.busy() if startup is not None else ()
            states = looks.states(self._ranks)
        return WorldStatus(
            tuple(
                RankStatus(s.rank, RankState.STARTING, sentences[s.rank]) if s.rank in starting else s for s in states
            )
        )

    def snapshot(self) -> Recording:
        """Record this moment: events, calls in flight, and stacks with the locals of user frames.

        Returns:
            A Recording, which ``ddpnb.diagnose()`` and ``ddpnb.show()`` take.

        Raises:
            WorldError: the World is closed.

        Example:
            >>> ddpnb.diagnose(world.snapshot()).outcome
            'hang'
        """
        with self._ranks.opened():
            observer, startup = looks.observer(self._ranks), self._ranks.startup
            recording = observer.with_account(observer.record())
            return replace(recording, startup=startup.state if startup is not None else None)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Recording of this moment to a file: see ``Recording.save()``. ``ddpnb.load()`` reads it.

        Args:
            path: a file that does not exist yet, or is replaced.

        Raises:
            UsageError: the file could not be written there.
            CannotWrite: the disk is full.

        Example:
            >>> world.save("hang.ddpnb")
        """
        check_writable(path)
        self.snapshot().save(path)

    def evaluate(
        self, expression: str, *, ranks: int | Iterable[int] | None = None, frame: int = 0, timeout: float = 5.0
    ) -> Evaluations:
        """Evaluate an expression on ranks: in the current user frame, or on idle ranks with the variables of cells.

        Args:
            expression: Python; it runs on the rank, with all its side effects.
            ranks: which ranks; by default all that are alive.
            frame: 0 for the innermost user frame, 1 for its caller, ...
            timeout: seconds to wait for the result; after that the evaluation continues in its own thread.

        Returns:
            rank -> ``Evaluation``, with the text and, for plain Python objects, the value.

        Raises:
            UsageError: not a valid expression, or an unknown rank.
            WorldError: the World is closed, or one of these ranks is dead.

        Example:
            >>> world.evaluate("loss.item()").values_by_rank
            {0: 0.25, 1: 0.31}
        """
        check_expression(expression)
        arguments.whole("frame", frame, 0)
        arguments.seconds("timeout", timeout)
        with self._ranks.opened():
            chosen = self._ranks.chosen(ranks)
            request = verbs.Evaluate(expression=verbs.LongText(expression), frame=frame, timeout=timeout)
            answers = self._ranks.ask(chosen, request, timeout + ANSWER_S)
        return Evaluations.of(expression, chosen, answers)

    def diff(self, frame: int = 0, name: str = "") -> FrameDiff:
        """Compare the variables of the same frame on all ranks, side by side, also while the ranks hang.

        Modules, functions and classes are shown only where they differ.

        Args:
            frame: 0 for the innermost function that most ranks are in, 1 for its caller, ...
            name: a variable to open: what is inside it, one level deep. A path opens a part of it, as in
                ``"args.model"``, ``"batch['image']"``, ``"optimizer.param_groups[0]"``.

        Returns:
            A table; ``differing`` has the variables that differ.

        Raises:
            UsageError: ``frame`` is not a whole number, or ``name`` is not a text.
            WorldError: the World is closed.

        Example:
            >>> world.diff().differing
            {'step': {0: '4', 1: '3'}}
            >>> world.diff(name="args").differing
            {'.lr': {0: '0.1', 1: '0.01'}}
        """
        arguments.whole("frame", frame, 0)
        arguments.text("name", name)
        with self._ranks.opened():
            recording = looks.observer(self._ranks).record(values=True)
            in_thread = (one.rank for one in recording.ranks.values() if one.shown_stack is not one.main_stack)
            frames = frame_variables.side_by_side(recording, frame, next(in_thread, None))
            return FrameDiff(frames if frames is None or not name else self._open(frames, name))

    def _open(self, frames: SideBySide, name: str) -> SideBySide:
        """What is inside a variable of a function that ranks are in; ``name``: see ``World.diff``."""
        file, path = map(verbs.LongText, (next(iter(frames.sites.values())).file, name))
        request = verbs.Open(file=file, function=frames.function, path=path)
        with self._ranks.opened():
            return frame_variables.opened(frames, name, self._ranks.ask(list(frames.sites), request))

    def tensor(
        self,
        name: str,
        frame: int | None = 0,
        *,
        ranks: int | Iterable[int] | None = None,
        timeout: float = 5.0,
    ) -> TensorByRank:
        """A tensor on each rank: type, shape, minimum, maximum, mean, norm, NaN, histogram, and where two ranks differ.

        Works while ranks train, are held, wait or hang, without a collective. The tensor is only read, on the CPU where it
        lies there; of a tensor on a GPU, what is in its memory now. No code of the script runs: attributes and items are read
        where they lie, and what is computed (a property, a call) is refused; ``evaluate()`` takes any expression.

        Args:
            name: a variable followed by attributes and items (``"loss"``, ``"model.fc.weight.grad"``, ``"grads['x']"``), or
                a tensor of a followed model: a parameter or buffer (``"fc.weight"``), its gradient (``"fc.weight.grad"``), or
                a state of its optimizer (``"fc.weight.exp_avg"``).
            frame: 0 for the innermost user frame, 1 for its caller, ...; None: only tensors of followed models. On idle ranks
                the variables of cells.
            ranks: which ranks; all by default.
            timeout: seconds that a rank may take to read it. Of more than 16.7 million elements, parts are read that lie
                evenly over the tensor.

        Returns:
            rank -> ``TensorFacts``, the groups of equal ranks, and where two of them differ.

        Raises:
            UsageError: the name is no path, no rank has such a tensor, or an unknown rank.
            WorldError: the World is closed, or one of these ranks is dead.

        Example:
            >>> world.tensor("model.fc.weight").sides
            ((0, 2, 3), (1,))
        """
        return tensors.tensor(self._ranks, name, frame, ranks, timeout)

    def tensor_names(self, frame: int | None = 0) -> tuple[str, ...]:
        """Names that ``tensor()`` takes: of tensors in this frame, and of the followed models.

        Args:
            frame: as for ``tensor()``.

        Returns:
            Up to 1000 names, those that most ranks have first.

        Raises:
            UsageError: ``frame`` is not a whole number.
            WorldError: the World is closed.

        Example:
            >>> world.tensor_names()
            ('loss', 'model.fc.weight', 'model.fc.bias')
        """
        return tensors.names(self._ranks, frame)

    def compare(self, trace: bool = False) -> Comparison:
        """Compare the replicas on all ranks, tensor by tensor, exactly, without a collective.

        Works while ranks train, wait or hang. If the models no longer exist, the last samples of the run are
        compared (``Comparison.exact`` is then False).

        Args:
            trace: also trace the next forward of all ranks, module by module, and report where it first
                differs. Needs a run in progress.

        Returns:
            The tensors that differ, on which ranks, and by how much. It is true if none differs.

        Raises:
            WorldError: the World is closed, or a rank is unresponsive.

        Example:
            >>> print(world.compare())
            1 of 4 tensors differ
              0.weight: ranks 0, 2 and 3 | rank 1; largest difference 0.125
        """
        with self._ranks.opened():
            alive = self._ranks.alive()
            looks.check_responsive(self._ranks, alive)
            run = self._ranks.last_monitor
        moving = run is not None and not run.known.is_set()
        try:
            live = comparison.compare(self._ranks.processes, alive, trace, moving=moving)
        except WorldError:
            looks.check_responsive(self._ranks, alive)  # a rank may have been stopped since
            raise
        if run is None:
            return live
        recording = run.recording or run.observer.record(ask=False)
        found = live if live.compared else comparison.of_recording(recording)
        return found if found.equal else replace(found, notes=(*found.notes, *comparison.injected(recording)))

    def lines(self, file: str | None = None, window: int | str = -1) -> SourceLines:
        """Which ranks ran which line of a file, up to this moment: see ``ddpnb.lines()``.

        Args:
            file: a path, or the end of one; None: the file in which the ranks part first.
            window: -1: since the last collective or optimizer step that all ranks have begun; -2: the part before, and
                so on; ``"run"``: the whole run.

        Returns:
            The lines of the file; shown, those that not all ranks ran.

        Raises:
            UsageError: no rank ran a line of this file, or there is no such part of the run.
            WorldError: the World is closed.

        Example:
            >>> world.lines()
            train.py, since all_reduce #57 (ranks 0-3): only some ranks ran one line
               line  0  1  2  3  which ranks  code
            >   41   ·  ●  ·  ·  only rank 1      return
            ● ran, · did not run, > only some ranks ran it
        """
        with self._ranks.opened():
            recording = looks.observer(self._ranks).record(ask=False)
        return source_lines.lines(recording, file, window)

    def partings(self) -> Partings:
        """Where the ways of the ranks part, up to this moment: see ``ddpnb.partings()``.

        Returns:
            The partings, the first one first; shown with the source around each decision, and who went which way.

        Raises:
            WorldError: the World is closed.

        Example:
            >>> world.partings()
            Ranks part at a decision: train.py:8 in train
                0-3  >  8 | if not batch:
                  2 ->  9 |     continue
        """
        return parting.partings(self.snapshot())

    def stacks(self) -> Stacks:
        """The stacks of all ranks merged into one tree, at this moment: see ``ddpnb.stacks()``; also while they hang.

        Returns:
            The tree; where ranks differ, its branches name them.

        Raises:
            WorldError: the World is closed.

        Example:
            >>> world.stacks()
            [ranks 0-3] main  train.py:30
              [ranks 0, 2 and 3] train  train.py:21
              [culprit: rank 1] evaluate  train.py:12
        """
        return merged.stacks(self.snapshot())
