"""What every rank does, and what its variables are."""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.analysis import frames
from ddpnb.analysis.status import RankStatus
from ddpnb.cluster import hotline
from ddpnb.hands.ranks import ANSWER_S, Ranks
from ddpnb.hands.views import Evaluations, FrameDiff, WorldStatus
from ddpnb.model.holds import check_expression
from ddpnb.model.recording import Recording


class Looks(Ranks):
    """Ranks that can be looked at."""

    def _starting(self) -> dict[int, str]:
        """Ranks that are in a step of start-up, and what they do there."""
        raise NotImplementedError

    def snapshot(self) -> Recording:
        """A Recording of this moment: phases, calls in flight, stacks with the locals of user frames."""
        return self._asked(values=False)

    def status(self) -> WorldStatus:
        """What every rank is doing, in a line each."""
        with self._lock:
            self._check_open()
            starting = self._starting()
            found = self._states()
        return WorldStatus(
            tuple(RankStatus(o.rank, "starting", starting[o.rank]) if o.rank in starting else o for o in found)
        )

    def evaluate(
        self, expression: str, *, ranks: int | Iterable[int] | None = None, frame: int = 0, timeout: float = 5.0
    ) -> Evaluations:
        """Evaluate an expression where ranks stand: in the user's frame, or at the prompt among the variables of cells.

        Args:
            expression: Python; it runs on the rank, with all its side effects.
            ranks: which ranks; all that live by default.
            frame: 0 for the innermost frame of the user's code, 1 for its caller ...
            timeout: seconds that it may take; what waits longer goes on in a thread of its own.

        Raises:
            UsageError: this is no expression.
        """
        check_expression(expression)
        with self._lock:
            self._check_open()
            chosen = self._chosen(ranks)
            content = {"verb": "evaluate", "expression": expression, "frame": frame, "timeout": timeout}
            answers = hotline.ask(self._engines, chosen, content, timeout + ANSWER_S)
        return Evaluations.of(expression, chosen, answers)

    def diff(self, frame: int = 0) -> FrameDiff:
        """The same frame of all ranks side by side, and which variables differ.

        Args:
            frame: 0 for the innermost function in which most ranks are, 1 for the one around it ...
        """
        return FrameDiff(frames.side_by_side(self._asked(values=True), frame))
