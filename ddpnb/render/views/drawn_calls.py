"""From when to when a call is drawn, and from when on all ranks were in it, as far as its columns tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpnb.render.views.columns import Shown
from ddpnb.render.views.lane import DrawnCall

_CLOCKS_S = 0.001  # a collective that ended this long before the last arrival: the clocks differ
# The end of a call that no Python code waits for is recorded at the next call. A long call that ended so shortly
# before the next one was most likely asynchronous, as all calls of DDP's reducer are.
_NEXT_S, _LONG_S = 200e-6, 2e-3


def drawn(events: NDArray[Any], met: NDArray[np.float64], now: float, title: Callable[[Any], str]) -> list[DrawnCall]:
    """The calls as they are drawn; ``spanOf`` in ``columns.js`` does the same.

    Args:
        events: ``columns.EVENT`` rows of one lane, in the order of time.
        met: of each, the second in which all ranks had come to it; NaN: not known.
        now: until when open calls last, in seconds.
        title: of a row.
    """
    begin, end, state = events["begin"], events["end"], events["state"]
    following = np.append(begin[1:], np.inf)
    long = end - np.fmax(begin, np.where(met <= end, met, begin)) > _LONG_S
    late = (state == Shown.DONE) & (following <= end + _NEXT_S) & ((following < end) | long)
    state = np.where(late, np.uint8(Shown.LEFT), state)
    # The end of an asynchronous call was not recorded: it was not before all ranks arrived.
    unseen = (state == Shown.LEFT) & (met <= end + _CLOCKS_S)
    end = np.fmax(begin, np.where(unseen, met, np.where(np.isinf(end), now, end)))
    never = (events["state"] == Shown.OPEN) | (events["state"] == Shown.LEFT)  # it ended before all had come
    met = np.where(met > end + _CLOCKS_S, np.where(never, end, begin), met)
    open_ = (state == Shown.OPEN) | (state == Shown.LEFT) | (state == Shown.HELD)
    met = np.clip(np.where(np.isnan(met), np.where(open_, end, begin), met), begin, end)
    return [
        DrawnCall(
            float(begin[at]), float(met[at]), float(end[at]), Shown(int(state[at])), title(event), int(event["number"])
        )
        for at, event in enumerate(events)
    ]
