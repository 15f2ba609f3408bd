"""The calls of one lane, of all its runs, in the order in which they came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpnb.render.views.columns import EVENT, Events, Shown

KEEP = 10_000  # calls of a rank; at twice as many, the older half is dropped
_MOST = (1 << 32) - 1  # of a number


@dataclass
class LaneCalls:
    """The calls of one lane, in the order in which they came. What is new costs as much as there is news.

    The numbers of a process begin again with each new one: here those of a run follow those of the run before.
    """

    place: int
    events: Events = field(default_factory=lambda: np.zeros(256, EVENT))
    count: int = 0
    told: int = 0  # number already given out
    again: set[int] = field(default_factory=set[int])  # changed since then
    highest: int = -1
    ordered: bool = True
    first: int = 0  # number of the first call of this run
    start: int = 0  # and its place in ``events``
    least: float = np.inf  # seconds: when the first one of this run that is kept began
    oldest: float = -np.inf  # seconds: earlier calls were dropped
    resumed: float = -np.inf  # earlier calls of this run are not known
    _open: set[int] = field(default_factory=set[int])  # places of this run's calls that have not ended
    _offset: int | None = 0  # from the numbers of the process to those here; None: no call of this run has come

    def begin(self) -> None:
        """What comes from now on is of another run."""
        self.resumed = -np.inf
        self.start, self.least = self.count, np.inf
        self._open.clear()
        if self._offset is not None and self.highest >= self.first:
            self.first, self._offset = self.highest + 1, None

    def number(self, number: int) -> int:
        """The number here of this run's call with this number."""
        return number + (self._offset or 0)

    def take(self, new: Events) -> None:
        if self._offset is None:
            self._offset = self.first - int(new["number"].min())
        numbers = new["number"].astype(np.int64) + self._offset
        if self.first:
            new, numbers = new[numbers >= self.first], numbers[numbers >= self.first]
            new["number"] = np.minimum(numbers, _MOST)
        if not len(new):
            return
        self.least = min(self.least, float(new["begin"].min()))
        self.ordered = self.ordered and bool((np.diff(numbers) > 0).all())
        if self.count and int(numbers.min()) <= self.highest:
            new = self._replace(new)
        if not len(new):
            return
        while self.count + len(new) > len(self.events):
            self.events = np.concatenate((self.events, np.zeros(max(256, len(self.events)), EVENT)))
        self.events[self.count : self.count + len(new)] = new
        self._open.update((np.flatnonzero(np.isinf(new["end"])) + self.count).tolist())
        self.count += len(new)
        self.highest = max(self.highest, int(new["number"].max()))

    def _replace(self, new: Events) -> Events:
        """Put in place what was known before; what is really new is left."""
        known = self.events["number"][: self.count]
        order = None if self.ordered else np.argsort(known, kind="stable")
        at = np.minimum(np.searchsorted(known, new["number"], sorter=order), self.count - 1)
        found = at if order is None else order[at]
        same = known[found] == new["number"]
        self.events[found[same]] = new[same]
        self._open.difference_update(found[same & np.isfinite(new["end"])].tolist())
        self.again.update(found[same & (found < self.told)].tolist())
        rest = new[~same]
        self.ordered = self.ordered and (not len(rest) or int(rest["number"].min()) > self.highest)
        return rest

    def all(self) -> Events:
        return self.events[: self.count]

    @property
    def of_run(self) -> Events:
        """Those of the current run."""
        return self.events[self.start : self.count]

    @property
    def standing(self) -> Events:
        """Those of the current run that have not ended, in the order in which they came."""
        return self.events[sorted(self._open)]

    def close(self, at: float, met: Callable[[NDArray[Any]], NDArray[np.float64]]) -> None:
        """The rank left the run at this moment: what is open ended then.

        Args:
            at: seconds.
            met: when the last rank came to these places; NaN: not all have.
        """
        open_ = np.array(sorted(self._open), np.int64)
        events = self.events[open_]
        left = (events["state"] == Shown.LEFT) & (met(events["place"]) <= at)
        ends = open_[~left]
        self.events["end"][ends] = np.fmax(at, self.events["begin"][ends])
        self._open.difference_update(ends.tolist())
        self.again.update(ends[ends < self.told].tolist())

    def lose(self, at: float) -> None:
        """Calls of this run were lost up to this moment: drop the earlier ones, too."""
        self._keep(slice(0, self.start))
        self.resumed = at

    def drop(self, before: int) -> None:
        """Drop calls with lower numbers."""
        self._keep(self.all()["number"] >= before)

    def forget(self) -> None:
        """Drop the older half."""
        if self.count > KEEP:
            self.oldest = float(self.events["begin"][self.count - KEEP])
            self._keep(slice(self.count - KEEP, self.count))

    def _keep(self, which: Any) -> None:
        of_run = np.arange(self.count)[which] >= self.start
        self.events = self.all()[which].copy()
        self.count, self.start = len(self.events), int((~of_run).sum())
        self.least = float(self.of_run["begin"].min(initial=np.inf))
        self._open = {*(np.flatnonzero(np.isinf(self.of_run["end"])) + self.start).tolist()}

    def news(self, *, whole: bool) -> Events:
        again = [] if whole else sorted(self.again)
        begin, self.told = 0 if whole else self.told, self.count
        self.again.clear()
        return np.concatenate((self.events[again], self.events[begin : self.count]))
