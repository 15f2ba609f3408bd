"""What is drawn: lanes, runs, calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpnb.recording.rank_state import RankState
from ddpnb.render.views.columns import CallKind, Events, Shown
from ddpnb.render.views.marks import LaneMark

#: when a rank was held, in seconds; the end is infinite while it is
Hold = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Lane:
    """What is known of a rank in a run besides its calls. Times are seconds since the origin.

    ``until`` is when the rank ended or ceased to compute without being in a call: infinite while it
    continues. ``ended`` is when it left the run, well or (``failed``) not: infinite while it is in it. ``doing`` says
    what it is doing now, ``stands_in`` is the call that it had left and has waited for since then; -1: none.
    ``since`` goes with the mark.
    """

    rank: int
    begin: float = 0.0
    until: float = np.inf
    state: RankState = RankState.UNKNOWN
    doing: str = ""
    mark: LaneMark | None = None
    since: float = 0.0
    stands_in: int = -1
    ended: float = np.inf
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A run on the axis. ``begin`` is infinite while nothing is known of it, ``end`` until all ranks have left it."""

    number: int  # in this time line, from 0
    name: str = ""
    begin: float = np.inf
    end: float = np.inf


@dataclass(frozen=True, slots=True)
class Columns:
    """The calls of all lanes (``whole``) or those that are new or known better, and what they refer to.

    ``places`` are the places of which more is known, ``met`` when the last rank came to each, NaN while
    that is not known. Of ``texts`` and ``kinds`` (see ``CallReader``) given are the new ones, and of ``holds``, each with its
    lane, those that are new or have ended.
    """

    whole: bool
    events: Events
    places: NDArray[np.int64]
    met: NDArray[np.float64]
    texts: tuple[str, ...]
    kinds: tuple[CallKind, ...]
    holds: tuple[tuple[int, Hold], ...] = ()


@dataclass(frozen=True, slots=True)
class DrawnCall:
    """One call as it is drawn: it waits from ``begin`` to ``met`` and is in the collective until ``end``."""

    begin: float
    met: float
    end: float
    shown: Shown
    title: str
    number: int
