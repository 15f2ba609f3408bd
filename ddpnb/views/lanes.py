"""Lanes: the calls of every rank in time, in columns, ready to be drawn.

64 ranks with 10,000 calls each are built in about a second, and what is new costs as much as there is
news. Nothing that is recorded is trusted: moments that are missing or make no sense are put beside
their neighbours, and in a group that nobody knows there is nobody to wait for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpnb.model.calls import Call
from ddpnb.model.findings import Diagnosis
from ddpnb.model.rank_state import RankState
from ddpnb.model.recording import Recording
from ddpnb.views.arrivals import Arrivals
from ddpnb.views.columns import EVENT, CallKind, CallReader, Events, Shown
from ddpnb.views.marks import Doing, LaneMark, begin_of, doings, few, marks, representatives

MOST = 64  # lanes
KEEP = 10_000  # calls of a rank; at twice as many, the older half is dropped
_CLOCKS_S = 0.001  # a collective that ended this long before the last arrival: the clocks differ
# The end of a call that no Python code waits for is recorded at the next call. A long call that ended so shortly
# before the next one was most likely asynchronous, as all calls of DDP's reducer are.
_NEXT_S, _LONG_S = 200e-6, 2e-3


@dataclass(frozen=True, slots=True)
class Lane:
    """What is known of a lane besides its calls. Times are seconds since the origin.

    ``until`` is when the rank ended or ceased to compute without being in a call: infinite while it
    continues. ``doing`` says what it is doing now, ``stands_in`` is the call that it had left and has waited for
    since then; -1: none. ``since`` goes with the mark.
    """

    rank: int
    begin: float = 0.0
    until: float = np.inf
    state: RankState = RankState.UNKNOWN
    doing: str = ""
    mark: LaneMark | None = None
    since: float = 0.0
    stands_in: int = -1


@dataclass(frozen=True, slots=True)
class Columns:
    """The calls of all lanes (``whole``) or those that are new or known better, and what they refer to.

    ``places`` are the places of which more is known, ``met`` when the last rank came to each, NaN while
    that is not known. Of ``texts`` and ``kinds`` (see ``CallReader``) given are the new ones.
    """

    whole: bool
    events: Events
    places: NDArray[np.int64]
    met: NDArray[np.float64]
    texts: tuple[str, ...]
    kinds: tuple[CallKind, ...]


@dataclass(frozen=True, slots=True)
class DrawnCall:
    """One call as it is drawn: it waits from ``begin`` to ``met`` and is in the collective until ``end``."""

    begin: float
    met: float
    end: float
    shown: Shown
    title: str
    number: int


@dataclass
class _Calls:
    """The calls of one lane, in the order in which they came."""

    place: int
    events: Events = field(default_factory=lambda: np.zeros(256, EVENT))
    count: int = 0
    told: int = 0  # number already given out
    again: set[int] = field(default_factory=set[int])  # changed since then
    highest: int = -1
    ordered: bool = True

    def take(self, new: Events) -> None:
        numbers = new["number"].astype(np.int64)
        self.ordered = self.ordered and bool((np.diff(numbers) > 0).all())
        if self.count and int(numbers.min()) <= self.highest:
            new = self._replace(new)
        if not len(new):
            return
        while self.count + len(new) > len(self.events):
            self.events = np.concatenate((self.events, np.zeros_like(self.events)))
        self.events[self.count : self.count + len(new)] = new
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
        self.again.update(found[same & (found < self.told)].tolist())
        rest = new[~same]
        self.ordered = self.ordered and (not len(rest) or int(rest["number"].min()) > self.highest)
        return rest

    def all(self) -> Events:
        return self.events[: self.count]

    def news(self, *, whole: bool) -> Events:
        again = [] if whole else sorted(self.again)
        begin, self.told = 0 if whole else self.told, self.count
        self.again.clear()
        return np.concatenate((self.events[again], self.events[begin : self.count]))

    def forget(self) -> None:
        self.events = self.events[max(0, self.count - KEEP) : self.count].copy()
        self.count = len(self.events)


class Lanes:
    """The lanes of these ranks; other ranks only count for whom one waits.

    Args:
        ranks: in the order in which they are drawn. Ranks of which calls come later get a lane too, as
            long as there is room.
        of: how many ranks there are.
        most: lanes.
        origin_ns: from where time is counted; by default from the first call.
    """

    def __init__(self, ranks: Iterable[int] = (), of: int = 0, most: int = MOST, origin_ns: int = 0) -> None:
        self.of = of
        self._most = most
        self.now = 0.0  # seconds since the origin: up to then something is known
        self._arrivals = Arrivals()
        self._reader = CallReader(self._arrivals)
        self._reader.seconds(origin_ns)
        self._calls: dict[int, _Calls] = {}
        self._about: dict[int, Lane] = {}
        self._changed: list[NDArray[np.int64]] = []  # places
        self._told = (0, 0)  # texts and kinds
        self._anew = True  # give out everything again
        for rank in ranks:
            self._calls_of(rank)

    def add(self, rank: int, calls: Iterable[Call]) -> None:
        """New or updated calls of a rank, in the order of their numbers."""
        made = tuple(calls)
        if not made:
            return
        lane = self._calls_of(rank)
        before = float(lane.events["begin"][lane.count - 1]) if lane is not None and lane.count else 0.0
        events, seen, places = self._reader.read(rank, made, before)
        self._changed.append(self._arrivals.arrive(rank, places, events["begin"], seen))
        self.now = max(self.now, float(events["begin"].max()), _last(events["end"]))
        if lane is not None:
            self._moved(rank)
            events["lane"] = lane.place
            lane.take(events)
            if lane.count > 2 * KEEP:
                self._forget()

    def _moved(self, rank: int) -> None:
        """Drop what was known of a rank before its last calls."""
        about = self._about.get(rank)
        if about is not None:
            mark = about.mark if about.mark is not None and about.mark.kind == "mismatch" else None
            self._about[rank] = Lane(rank, about.begin, mark=mark, since=about.since)

    def mark(self, recording: Recording, diagnosis: Diagnosis | None = None) -> None:
        """Take the states of the ranks and the culprits from this Recording."""
        said, marked = doings(recording), marks(recording, diagnosis)
        seconds = self._reader.seconds
        for rank in self._calls:
            record = recording.ranks.get(rank)
            if record is None:
                continue
            first, mark, doing = self._first(rank), marked.get(rank), said.get(rank, Doing())
            begin, until = seconds(begin_of(record)), seconds(doing.since_ns)
            if not (begin <= first or not self._calls[rank].count):
                begin = first
            self._about[rank] = Lane(
                rank,
                float(np.nan_to_num(begin)),
                until if np.isfinite(until) else np.inf,
                doing.state,
                self._in_full(rank, doing.words),
                mark,
                float(np.nan_to_num(seconds(mark.since_ns), nan=first)) if mark is not None else 0.0,
                doing.stands_in,
            )
            self.now = max(self.now, float(np.nan_to_num(until)))
        self.tick(recording.taken_ns)

    def _in_full(self, rank: int, words: str) -> str:
        """With those among whom one waits for who have come with another call."""
        doing = self.doing(rank)
        return doing if words and doing.startswith(words) else words

    def tick(self, now_ns: int) -> None:
        """The moment that this is: open calls last until then."""
        self.now = max(self.now, float(np.nan_to_num(self._reader.seconds(now_ns))))

    def _calls_of(self, rank: int) -> _Calls | None:
        lane = self._calls.get(rank)
        if lane is None and len(self._calls) < self._most:
            lane = self._calls[rank] = _Calls(len(self._calls))
        return lane

    def _first(self, rank: int) -> float:
        return float(self._calls[rank].all()["begin"].min(initial=np.inf if self._calls[rank].count else 0.0))

    def _forget(self) -> None:
        for lane in self._calls.values():
            lane.forget()
        used = np.unique(np.concatenate([lane.events["place"] for lane in self._calls.values()]))
        new = self._arrivals.forget(used.astype(np.int64))
        for lane in self._calls.values():
            lane.events["place"] = new[lane.events["place"]]
        self._anew = True

    # -- what is shown

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """From top to bottom."""
        return tuple(self._about.get(rank) or Lane(rank, self._first(rank)) for rank in self._calls)

    @property
    def count(self) -> int:
        return sum(lane.count for lane in self._calls.values())

    def columns(self) -> Columns:
        """Everything; ``news`` continues from here."""
        self._anew = True
        return self.news()

    def news(self) -> Columns:
        """Changes since the last time; everything if the old numbers are no longer valid."""
        whole, self._anew = self._anew, False
        fresh = [lane.news(whole=whole) for lane in self._calls.values()]
        places = np.arange(len(self._arrivals)) if whole else np.unique(np.concatenate([*self._changed, _NONE]))
        texts, kinds = (0, 0) if whole else self._told
        self._changed, self._told = [], (len(self._reader.texts), len(self._reader.kinds))
        return Columns(
            whole,
            np.concatenate([np.zeros(0, EVENT), *fresh]),
            places,
            self._arrivals.met(places),
            tuple(self._reader.texts[texts:]),
            tuple(self._reader.kinds[kinds:]),
        )

    def doing(self, rank: int) -> str:
        """The call a rank is in, and the ranks it waits for, from its calls alone."""
        lane = self._calls.get(rank)
        if lane is None:
            return ""
        standing = np.flatnonzero(lane.all()["state"] == Shown.OPEN)
        if not len(standing):
            return ""
        event = lane.events[standing[-1]]
        missing = self._arrivals.missing_ranks(int(event["place"]))
        return self._title(event) + (f" waits for {few(missing)}" if missing else "")

    def spans(self, rank: int, last: int = 0) -> list[DrawnCall]:
        """The calls of a lane (the last ones) as they are drawn, in the order of time."""
        events = self._calls[rank].all()
        events = events[np.argsort(events["begin"], kind="stable")][-last:]
        begin, end, state = events["begin"], events["end"], events["state"]
        met = self._arrivals.met()[events["place"]]
        following = np.append(begin[1:], np.inf)
        long = end - np.fmax(begin, np.where(met <= end, met, begin)) > _LONG_S
        late = (state == Shown.DONE) & (following <= end + _NEXT_S) & ((following < end) | long)
        state = np.where(late, np.uint8(Shown.LEFT), state)
        # The end of an asynchronous call was not recorded: it was not before all ranks arrived.
        unseen = (state == Shown.LEFT) & (met <= end + _CLOCKS_S)
        end = np.fmax(begin, np.where(unseen, met, np.where(np.isinf(end), self.now, end)))
        met = np.where(met > end + _CLOCKS_S, begin, met)
        open_ = (state == Shown.OPEN) | (state == Shown.LEFT) | (state == Shown.HELD)
        met = np.clip(np.where(np.isnan(met), np.where(open_, end, begin), met), begin, end)
        return [
            DrawnCall(float(begin[at]), float(met[at]), float(end[at]), Shown(int(state[at])), self._title(event), int(event["number"]))
            for at, event in enumerate(events)
        ]  # fmt: skip

    def _title(self, event: Any) -> str:
        title = self._reader.texts[self._reader.kinds[event["kind"]][0]]
        return f"{title} #{event['seq']}" if event["seq"] else title


_NONE = np.zeros(0, np.int64)


def _last(end: NDArray[np.float64]) -> float:
    return float(end.max(where=np.isfinite(end), initial=-np.inf))


def lanes(recording: Recording, diagnosis: Diagnosis | None = None, most: int = MOST) -> Lanes:
    """The lanes of a Recording; with more ranks than ``most``, the most relevant ones."""
    shown = representatives(recording, diagnosis, most)
    firsts = [
        call.entered_ns for record in recording.ranks.values() for call in record.calls[:1] if call.entered_ns > 0
    ]
    made = Lanes(shown, max(recording.world_size, len(recording.ranks)), most, min(firsts, default=0))
    for rank in (*shown, *(set(recording.ranks) - set(shown))):
        made.add(rank, recording.ranks[rank].calls)
    made.mark(recording, diagnosis)
    return made
