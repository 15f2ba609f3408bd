"""How sure a search can be of a failure that does not happen every time.

A bad answer is certain: the failure was seen. A good one may be a failure that did not happen. How often it happens where
it can (its rate) is known from the configurations that have failed, with a uniform prior.
"""

from __future__ import annotations

from dataclasses import dataclass

_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Rate:
    """How often the failure happened in configurations that can fail: ``bad`` times, and ``good`` times not."""

    bad: int = 0
    good: int = 0

    @property
    def mean(self) -> float:
        """The expected rate."""
        return (self.bad + 1) / (self.bad + self.good + 2)

    def missed(self, probes: int) -> float:
        """The probability that a configuration that can fail does not in this many probes.

        Example:
            >>> round(Rate(bad=3, good=7).missed(10), 3)
            0.088
        """
        chance = 1.0
        for number in range(probes):
            chance *= (self.good + 1 + number) / (self.bad + self.good + 2 + number)
        return chance

    def probes_needed(self, risk: float) -> int:
        """How many good answers it takes so that the probability of an error is at most ``risk``.

        Example:
            >>> Rate(bad=30, good=70).probes_needed(0.001)
            24
        """
        chance, number = 1.0, 0
        while chance > risk and number < _MOST:
            chance *= (self.good + 1 + number) / (self.bad + self.good + 2 + number)
            number += 1
        return number
