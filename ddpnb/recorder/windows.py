"""At which places a window of executed lines begins, so that the total cost stays within its limit."""

from __future__ import annotations

import math

# Of the time of a run, for the windows that begin at steps and for those at collectives each. What a window costs is mostly
# not measurable where it arises: the interpreter prepares code again when it runs next, with cold caches.
SHARE = 0.002
RESTART_S, EVENT_S = 40e-6, 1.5e-6  # cost of a window, and of each event in it: see benchmarks/lines.py
# Of windows at the beginning of a run, so that a short one has all of them: half of it at every place, a quarter at every
# second, an eighth at every fourth, and so on.
FIRST_S = 0.05
_MOST = 16


class Pace:
    """Decides which collectives, or which optimizer steps, begin a window: those whose number is a multiple of a power of two.

    So windows of ranks that have other powers still have places in common. Times are seconds of one clock.
    """

    def __init__(self) -> None:
        self._mask = 0
        self.spent = 0.0
        self._usual = self._each_s = 0.0
        self._last: tuple[int, float] | None = None

    @property
    def every(self) -> int:
        """How many of the places make one window."""
        return self._mask + 1

    def due(self, number: int) -> bool:
        """Whether a window begins at this collective or step."""
        return not number & self._mask

    def opened(self, number: int, now: float, cost: float) -> None:
        """A window has begun at this collective or step; ``cost``: of the window before it, and of beginning this one."""
        self.spent += cost
        if self._last is not None and number > self._last[0]:
            self._each_s = _follow(self._each_s, max(now - self._last[1], 1e-6) / (number - self._last[0]))
            self._usual = _follow(self._usual, cost)
        self._last = number, now
        left = FIRST_S - self.spent
        spread = math.floor(math.log2(FIRST_S / left)) if left > 0 else _MOST
        if spread <= 0 or not self._each_s:
            return
        usual = max(0, math.ceil(math.log2(self._usual / (SHARE * self._each_s))))
        self._mask = (1 << min(_MOST, spread, usual)) - 1


def _follow(usual: float, value: float) -> float:
    return 0.8 * usual + 0.2 * value if usual else value
