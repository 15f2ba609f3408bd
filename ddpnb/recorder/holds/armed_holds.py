"""A hold that is armed on this rank: whether what a thread is about to do meets its conditions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from ddpnb.recorder.holds import agreement
from ddpnb.recorder.holds.conditions import Conditions, Expression
from ddpnb.recorder.stacks.evaluation import sentence
from ddpnb.recorder.stacks.signal_handlers import of_handler
from ddpnb.recording.holds import Hold, Place
from ddpnb.texts import shortened

if TYPE_CHECKING:
    from ddpnb.recorder.files.boards import Places

_MOST_TROUBLES = 100
#: where values are announced: the shared file, the number of this pass, and the ranks that share it
Shared = tuple["Places", int, Sequence[int]]


class ArmedHold:
    """A hold, and how often it was met.

    Args:
        hold: its conditions.
        keep: it stays armed for later runs.
        conditions: evaluates its expressions.
        troubles: where it says why it cannot be met.
        once: it is removed when a thread stops at its place.
    """

    def __init__(
        self, hold: Hold, keep: bool, conditions: Conditions, troubles: list[str], *, once: bool = False
    ) -> None:
        self.hold, self.keep, self.once = hold, keep, once
        self.place = Place.read(hold.line) if hold.line else None
        self.is_off = self.stopped = False
        self.trouble = ""  # the first time that it could not be evaluated
        self.passes = 0  # at which its value was announced
        self._when = Expression(hold.when) if hold.when else None
        self._differs = Expression(hold.differs) if hold.differs else None
        self._conditions, self._troubles = conditions, troubles
        self._hits = 0

    @property
    def compares(self) -> bool:
        return self._differs is not None

    def restart(self) -> None:
        """A run has ended: count from the start again."""
        self._hits = self.passes = 0
        self.is_off = self.stopped = False
        self.trouble = ""

    def reason(self, frame: FrameType | None, shared: Callable[[ArmedHold], Shared | None]) -> str:
        """Why a thread in this frame must stop; empty if it need not.

        Args:
            frame: the user's; None: there is none.
            shared: where the ranks can compare values of this hold; it returns None where they cannot.
        """
        if self.is_off or (frame is None and (self._when or self._differs)):
            return ""
        expression = self._when
        try:
            if self._when is not None and not self._conditions.value(self._when, frame):  # type: ignore[arg-type]
                return ""
            why, expression = str(self.hold), self._differs
            if self._differs is not None and not (why := self._difference(frame, shared(self))):  # type: ignore[arg-type]
                return ""
        except Exception as error:  # an error in the user's expression: reported, and counted as no match
            if of_handler(error):
                raise
            self._say(expression.text if expression is not None else str(self.hold), error)
            return ""
        self._hits += 1
        self.stopped = self._hits >= self.hold.count
        return why if self.stopped else ""

    def _difference(self, frame: FrameType, shared: Shared | None) -> str:
        assert self._differs is not None
        value = self._conditions.value(self._differs, frame)
        mine = agreement.announced(value)
        if shared is None:
            return ""
        places, number, ranks = shared
        others = agreement.differing(places, number, mine, ranks)
        return agreement.sentence(self._differs.text, mine, others) if others else ""

    def _say(self, what: str, error: Exception) -> None:
        if isinstance(error, TimeoutError):
            self.is_off = True  # it would take as long at every pass
        self.trouble = self.trouble or shortened(sentence(error), 300)
        if len(self._troubles) < _MOST_TROUBLES:
            off = "; this hold is off for the run" if self.is_off else ""
            self._troubles.append(shortened(f"{what}: {sentence(error)}{off}", 300))


def missed(holds: Collection[ArmedHold], troubles: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Holds that could not be evaluated, or whose line stopped nobody, and why; ``troubles``: of all lines."""
    for one in holds:
        if one.trouble:
            yield str(one.hold), one.trouble
        elif one.place is not None and not one.stopped:
            yield str(one.hold), "; ".join(troubles)
