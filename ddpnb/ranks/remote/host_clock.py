"""Compares the monotonic clock of another host with that of this one, again and again."""

from __future__ import annotations

_LOOKS = 5  # the fastest of so many says how far apart the clocks are
_APART_NS = 1_000_000  # beyond what a look proves: then the clocks are compared again


class HostClock:
    """What must be added to the clock of a host, which gives that of this one.

    A request arrives after it was sent, and an answer after it was given: each look bounds the difference from both sides.
    A difference that a look proves wrong is replaced: the clocks have drifted apart, or one of the machines was suspended,
    during which its clock did not run.
    """

    def __init__(self) -> None:
        self.ahead_ns = 0
        self.known = False
        self.corrections = 0
        self._narrowest: tuple[int, int] | None = None
        self._left = _LOOKS

    def add(self, sent_ns: int, received_ns: int, answered_ns: int, arrived_ns: int) -> None:
        """Add a look: ``received_ns`` and ``answered_ns`` are of the clock of the host, the others of this one."""
        least, most = sent_ns - received_ns, arrived_ns - answered_ns
        if least > most:
            return  # one of the clocks was changed meanwhile
        if not self._left:
            if least - _APART_NS <= self.ahead_ns <= most + _APART_NS:
                return
            self._narrowest, self._left = None, _LOOKS
        if self._narrowest is None or most - least < self._narrowest[1] - self._narrowest[0]:
            self._narrowest = least, most
        self._left -= 1
        if not self._left:
            self.ahead_ns = sum(self._narrowest) // 2
            self.corrections += self.known
            self.known = True
