"""Which steps are sampled, so that the total cost stays within its limit.

What a look costs is mostly fixed (after a matrix product nothing of Python's is in the cache any more), so
in the long run most steps are let pass and some are looked at in full: every ``2 ** stride``-th, the same
ones on all ranks, as multiples of a larger power are those of a smaller one too.
"""

from __future__ import annotations

import math
import os
import time

from ddpnb.recording import protocol

SHARE, LEAST = 0.006, 0.002  # of a step's time, for looking and for letting pass; for looking at least
PASS_S = 80e-6  # cost of a step that is not sampled
# Of looks at the beginning of a model's training, so that a short run is little slower: half of it at every step, a
# quarter at every second, an eighth at every fourth, and so on.
FIRST_S = 0.1
_MOST = 12
_PART_BYTES = 16 << 20  # of a model that are digested in one sample


def slices_of(size: int) -> int:
    """Log2 of the number of slices in which a model of so many bytes is digested, one in each look."""
    return min(_MOST, max(0, (size - 1) // _PART_BYTES).bit_length())


class Pace:
    """Decides which steps of one model are sampled. Times are seconds of one clock."""

    def __init__(self) -> None:
        self.stride = 0
        self.looking = True
        self.cost = self.spent = 0.0  # of looking at the current step, so far, and in all
        self._usual = self._step_s = 0.0
        self._last: tuple[int, float] | None = None
        self._each = _steps_named(os.environ.get(protocol.LOOKS, ""))
        self.closely = 0 in self._each  # all tensors are looked at in the current step, whatever it costs

    def looked(self, step: int, now: float, models: int = 1) -> None:
        """The sample of this step is complete; ``models`` are followed."""
        cost, self.cost = self.cost, 0.0
        self.spent += cost
        if self._last is not None:
            steps, took = step - self._last[0], now - self._last[1] - cost
            self._step_s = _follow(self._step_s, max(took, 1e-6) / max(steps, 1))
            self._usual = _follow(self._usual, cost)  # except the first, which fills caches
        self._last = step, now
        left = FIRST_S - self.spent
        spread = math.floor(math.log2(FIRST_S / left)) if left > 0 else _MOST
        if not spread or not self._step_s:
            return
        allowed = max(SHARE * self._step_s - PASS_S, LEAST * self._step_s) / models
        usual = max(0, math.ceil(math.log2(max(self._usual, 1e-9) / allowed)))
        self.stride = min(_MOST, spread, usual)

    def next_step(self, step: int) -> None:
        """Decide whether the step that begins is sampled."""
        self.closely = step in self._each
        self.looking = self.closely or not step & ((1 << self.stride) - 1)


class Meter:
    """Add the time inside to the cost of sampling a step."""

    __slots__ = ("_began", "_pace")

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._began = time.perf_counter()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._pace.cost += time.perf_counter() - self._began


def _steps_named(text: str) -> range:
    """``LOW..HIGH`` as a range that contains both; an empty one for anything else."""
    low, _, high = text.partition("..")
    numbers = all(one.isascii() and one.isdecimal() and len(one) < 12 for one in (low, high))
    return range(int(low), int(high) + 1) if numbers else range(0)


def _follow(usual: float, value: float) -> float:
    return 0.7 * usual + 0.3 * value if usual else value
