"""The clock of a recording: the monotonic clock of the launcher's host, on whichever host a rank runs.

Monotonic clocks of two hosts begin anywhere. A rank on another host than its launcher finds in its environment
(``protocol.CLOCK``) what must be added to its own, or learns it when it becomes a rank (``inject.other_host``); the launcher
says when that has changed.
"""

from __future__ import annotations

import os
from time import monotonic_ns  # a script may replace that of the module

from ddpnb.recording.protocol import CLOCK, HOSTS


def _ahead_ns() -> int:
    """What is added to the clock of this host; 0 without the variable, or where it is no number."""
    try:
        return int(os.environ.get(CLOCK, "0"))
    except ValueError:
        return 0


_AHEAD_NS = _ahead_ns()

if os.environ.get(CLOCK) or os.environ.get(HOSTS):

    def now_ns() -> int:
        """Nanoseconds of the launcher's monotonic clock."""
        return monotonic_ns() + _AHEAD_NS

else:
    now_ns = monotonic_ns  # the usual case costs nothing


def set_ahead_ns(ns: int) -> None:
    """What is added to the clock of this host, in a process whose launcher may be on another one."""
    global _AHEAD_NS
    _AHEAD_NS = ns


def correct(ahead_ns: int) -> None:
    """Add this from now on: the two clocks have drifted apart. Without effect on the launcher's host."""
    if os.environ.get(CLOCK):
        set_ahead_ns(ahead_ns)
        os.environ[CLOCK] = str(ahead_ns)  # for processes that the rank starts


def of_launcher_ns(ns: int) -> int:
    """A time of this host's monotonic clock, in nanoseconds, by that of the launcher's."""
    return ns + _AHEAD_NS


def of_launcher(seconds: float) -> float:
    """A time of this host's monotonic clock, in seconds, by that of the launcher's."""
    return seconds + _AHEAD_NS * 1e-9
