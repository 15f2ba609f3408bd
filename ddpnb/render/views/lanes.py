"""Lanes: the calls of every rank in time, in columns, ready to be drawn.

64 ranks with 10,000 calls each are built in about a second, and what is new costs as much as there is
news. Nothing that is recorded is trusted: moments that are missing or make no sense are put beside
their neighbours, and in a group that nobody knows there is nobody to wait for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpnb.recording.calls import Call
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.marks import HeldTime, Mark
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.render.views.arrivals import Arrivals
from ddpnb.render.views.columns import EVENT, CallReader, Shown
from ddpnb.render.views.drawn_calls import drawn
from ddpnb.render.views.lane import Columns, DrawnCall, Hold, Lane, ShownRun
from ddpnb.render.views.lane_calls import KEEP, LaneCalls
from ddpnb.render.views.marks import Doing, LaneMark, begin_of, doings, few, marks, representatives

MOST = 64  # lanes
HOLDS = 1000  # of a rank, that are kept
MOST_RUNS = 20  # with more, the oldest is dropped


class Lanes:
    """The lanes of these ranks, in one run or in several after one another; other ranks only count for whom one waits.

    Args:
        ranks: in the order in which they are drawn. Ranks of which calls come later get a lane too, as
            long as there is room.
        of: how many ranks there are.
        most: lanes.
        origin_ns: when the run began: time is counted from there; by default from the first call.
    """

    def __init__(self, ranks: Iterable[int] = (), of: int = 0, most: int = MOST, origin_ns: int = 0) -> None:
        self.of = of
        self._most = most
        self._now = 0.0  # seconds since the origin: up to then something is known
        self._arrivals = Arrivals()
        self._reader = CallReader(self._arrivals)
        self._reader.seconds(origin_ns)
        self._calls: dict[int, LaneCalls] = {}
        self._about: dict[int, Lane] = {}
        self._pids: dict[int, int] = {}
        self._held: dict[int, HeldTime] = {}
        self._holds: dict[int, deque[Hold]] = {}  # of all runs
        self._new_holds: list[tuple[int, Hold]] = []  # and of which lane
        self._runs = [ShownRun(0, begin=0.0 if origin_ns else np.inf)]
        self.since_start = False  # whether time is counted from where the run began
        self._past: list[dict[int, tuple[Lane, int]]] = []  # of each earlier run: its lanes, and their first calls
        self._changed: list[NDArray[np.int64]] = []  # places
        self._told = (0, 0)  # texts and kinds
        self._anew = True  # give out everything again
        for rank in ranks:
            self._calls_of(rank)

    def begin(self, ranks: Iterable[int] = (), name: str = "", at_ns: int = 0) -> None:
        """Another run begins: what is added from now on is of it. Earlier ones with calls stay.

        Args:
            ranks: that are to have lanes.
            name: of the run.
            at_ns: when it began, on the clock of the ranks; 0: with its first call.
        """
        number = self._runs[-1].number + 1
        at = float(np.nan_to_num(self._reader.seconds(at_ns), nan=np.inf))
        if any(len(lane.of_run) for lane in self._calls.values()):
            self._end(self.now)
            lanes = {lane.rank: (lane, self._calls[lane.rank].first) for lane in self.lanes}
            self._past.append(lanes)
        else:
            self._runs.pop()
        self._runs.append(ShownRun(number, name, at))
        self._now = max(self._now, at if np.isfinite(at) else 0.0)
        self._reader.begin()
        self._about.clear()
        self._pids.clear()
        self._held.clear()
        for lane in self._calls.values():
            lane.begin()
        for rank in ranks:
            self._calls_of(rank)
        if len(self._runs) > MOST_RUNS:
            self._drop_runs(1)

    def lose(self) -> None:
        """Calls of this run were lost: nothing is drawn of it before those that come next."""
        for lane in self._calls.values():
            lane.lose(self.now)
        self._about.clear()
        self._forget_places()

    def _end(self, at: float) -> None:
        """All ranks have left the current run."""
        run = self._runs[-1]
        if np.isfinite(run.end):
            return
        for rank, lane in self._calls.items():
            about = self._about.get(rank) or Lane(rank, self._first(rank))
            if not np.isfinite(about.ended):
                self._about[rank] = replace(about, until=min(about.until, at), ended=at, stands_in=-1)
                lane.close(at, self._arrivals.met)
        self._runs[-1] = replace(run, begin=min(run.begin, self._first_of_all()), end=at)

    def _drop_runs(self, count: int) -> None:
        """Drop the oldest runs."""
        for rank in self._past[count - 1] if count else ():
            following = self._past[count].get(rank) if count < len(self._past) else None
            self._calls[rank].drop(following[1] if following is not None else self._calls[rank].first)
        del self._past[:count], self._runs[:count]
        self._forget_places()

    def add(self, rank: int, calls: Iterable[Call]) -> None:
        """New or updated calls of a rank, in the order of their numbers."""
        made = tuple(calls)
        if not made:
            return
        lane = self._calls_of(rank)
        before = float(lane.events["begin"][lane.count - 1]) if lane is not None and lane.count else 0.0
        events, seen, places = self._reader.read(rank, made, before)
        self._changed.append(self._arrivals.arrive(rank, places, events["begin"], seen))
        self._now = max(self._now, float(events["begin"].max()), _last(events["end"]))
        if lane is not None:
            self._moved(rank)
            events["lane"] = lane.place
            lane.take(events)
            if lane.count > 2 * KEEP:
                self._forget()

    def hold(self, rank: int, marks: Iterable[Mark]) -> None:
        """Take the holds of a rank in this run from its new marks."""
        lane = self._calls_of(rank)
        if lane is None:
            return
        held = self._held.setdefault(rank, HeldTime())
        before = held.since
        ended = held.take(marks)
        open_ = [(held.since, 0)] if held.since not in (0, before) else []
        seconds, holds = self._reader.seconds, self._holds.setdefault(rank, deque(maxlen=HOLDS))
        for begin, end in (*ended, *open_):
            one = float(seconds(begin)), float(np.nan_to_num(seconds(end), nan=np.inf))
            if holds and holds[-1][0] == one[0]:
                holds.pop()
            holds.append(one)
            self._new_holds.append((lane.place, one))

    def holds(self, rank: int) -> list[Hold]:
        """When a rank was held, in all runs: an open hold lasts until now, or until the rank ended."""
        about = self._about.get(rank)
        until = min(self.now, about.ended if about is not None else np.inf)
        return [(begin, end if np.isfinite(end) else max(begin, until)) for begin, end in self._holds.get(rank, ())]

    def _moved(self, rank: int) -> None:
        """Drop what was known of a rank before its last calls, but not that it has ended."""
        about = self._about.get(rank)
        if about is not None and not np.isfinite(about.ended):
            mark = about.mark if about.mark is not None and about.mark.kind == "mismatch" else None
            self._about[rank] = Lane(rank, about.begin, mark=mark, since=about.since)

    def mark(self, recording: Recording, diagnosis: Diagnosis | None = None) -> None:
        """Take the states of the ranks and the culprits from this Recording."""
        said, marked = doings(recording), marks(recording, diagnosis)
        before = self.now
        self.tick(recording.taken_ns)
        for rank, lane in self._calls.items():
            record = recording.ranks.get(rank)
            if record is None:
                continue
            if not 0 < self._pids.setdefault(rank, record.pid) != record.pid > 0:
                self._pids[rank] = record.pid
                self._about[rank] = self._lane(record, marked.get(rank), said.get(rank, Doing()))
            elif not np.isfinite(self._about[rank].ended):
                known = self._about[rank]
                self._about[rank] = replace(
                    known, until=min(known.until, before), doing="replaced by a new process", ended=before, failed=True
                )
            if np.isfinite(self._about[rank].ended):
                lane.close(self._about[rank].ended, self._arrivals.met)
        others = [record for rank, record in recording.ranks.items() if rank not in self._calls]
        ended = [lane.ended for lane in self.lanes]
        if ended and np.isfinite(ended).all() and all(record.ending is not None for record in others):
            self._end(max(ended))

    def _lane(self, record: RankRecord, mark: LaneMark | None, doing: Doing) -> Lane:
        rank, known, seconds = record.rank, self._about.get(record.rank), self._reader.seconds
        first, lane, ending = self._first(rank), self._calls[rank], record.ending
        begin, until = seconds(begin_of(record)), seconds(doing.since_ns)
        if not (begin <= first or not len(lane.of_run)):
            begin = first
        begin = float(np.nan_to_num(begin, nan=self._begun))
        until = until if np.isfinite(until) else np.inf
        ended, stands_in = np.inf, doing.stands_in
        if ending is not None:
            ended = until if np.isfinite(until) else self.now
            if known is not None and np.isfinite(known.ended):
                ended, until, stands_in = known.ended, known.until, known.stands_in
            elif (
                known is not None and known.until < ended and known.state is not RankState.IDLE
            ):  # it stood from then on until it ended
                until, stands_in = known.until, known.stands_in
        elif stands_in >= 0 and known is not None and known.stands_in == stands_in:
            until = min(until, known.until)  # a thread of torch that wakes for a moment does not end its wait
        elif doing.state in (RankState.IDLE, RankState.UNKNOWN) and not record.calls and not record.history:
            until = begin  # nothing of it is known to run
        self._now = max(self._now, until if np.isfinite(until) else 0.0)
        return Lane(
            rank,
            begin,
            min(until, ended),
            doing.state,
            self._in_full(rank, doing.words),
            replace(mark, number=lane.number(mark.number)) if mark is not None and mark.number >= 0 else mark,
            float(np.nan_to_num(seconds(mark.since_ns), nan=first)) if mark is not None else 0.0,
            stands_in,
            ended,
            failed=ending is not None and not ending.well,
        )

    def _in_full(self, rank: int, words: str) -> str:
        """With those among whom one waits for who have come with another call."""
        doing = self.doing(rank)
        return doing if words and doing.startswith(words) else words

    def tick(self, now_ns: int) -> None:
        """The moment that this is: open calls last until then."""
        self._now = max(self._now, float(np.nan_to_num(self._reader.seconds(now_ns))))

    def _calls_of(self, rank: int) -> LaneCalls | None:
        lane = self._calls.get(rank)
        if lane is None and len(self._calls) < self._most:
            lane = self._calls[rank] = LaneCalls(len(self._calls))
        return lane

    @property
    def _begun(self) -> float:
        """When the run began, as far as that is known."""
        begin = min(self._runs[-1].begin, self._first_of_all())
        return begin if np.isfinite(begin) else 0.0

    def _first(self, rank: int) -> float:
        """The first call of a rank in this run; without one, when the run began."""
        least = self._calls[rank].least
        return least if np.isfinite(least) else self._begun

    def _first_of_all(self) -> float:
        return min((lane.least for lane in self._calls.values()), default=np.inf)

    def _forget(self) -> None:
        for lane in self._calls.values():
            lane.forget()
        lanes = [(rank, lane.all()["number"].min(initial=lane.first)) for rank, lane in self._calls.items()]
        following = [*self._past[1:], {rank: (None, lane.first) for rank, lane in self._calls.items()}]
        gone = [all(least >= later[rank][1] for rank, least in lanes if rank in later) for later in following]
        self._drop_runs(gone.index(False) if False in gone else len(self._past))

    def _forget_places(self) -> None:
        used = np.unique(np.concatenate([lane.all()["place"] for lane in self._calls.values()]))
        new = self._arrivals.forget(used.astype(np.int64))
        for lane in self._calls.values():
            lane.events["place"] = new[lane.events["place"]]
        self._anew = True

    # -- what is shown

    @property
    def now(self) -> float:
        """Seconds since the origin: up to then something is known, or until then the run lasted."""
        end = self._runs[-1].end
        return end if np.isfinite(end) else self._now

    @property
    def runs(self) -> tuple[ShownRun, ...]:
        """The runs in the order of time; the last is the current one."""
        return (*self._runs[:-1], replace(self._runs[-1], begin=min(self._runs[-1].begin, self._first_of_all())))

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Those of the current run, from top to bottom."""
        return tuple(
            self._kept(self._about.get(rank) or Lane(rank, self._first(rank)), max(lane.oldest, lane.resumed))
            for rank, lane in self._calls.items()
        )

    @property
    def past(self) -> tuple[tuple[Lane, ...], ...]:
        """Those of the earlier runs."""
        return tuple(
            tuple(self._kept(lane, self._calls[lane.rank].oldest) for lane, _ in lanes.values()) for lanes in self._past
        )

    @staticmethod
    def _kept(lane: Lane, since: float) -> Lane:
        """A lane from its first call on that is known."""
        return lane if lane.begin >= since else replace(lane, begin=since, until=max(lane.until, since))

    def names(self, file: str, line: int) -> bool:
        """Whether a call that is shown was made at this line."""
        where = f"{file}:{line} in "
        return any(self._reader.texts[kind[3]].startswith(where) for kind in self._reader.kinds)

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
        every = ((self._calls[rank].place, one) for rank, made in self._holds.items() for one in made)
        holds, self._new_holds = tuple(every if whole else self._new_holds), []
        return Columns(
            whole,
            np.concatenate([np.zeros(0, EVENT), *fresh]),
            places,
            self._arrivals.met(places),
            tuple(self._reader.texts[texts:]),
            tuple(self._reader.kinds[kinds:]),
            holds,
        )

    def doing(self, rank: int) -> str:
        """The call a rank is in, and the ranks it waits for, from its calls alone."""
        lane = self._calls.get(rank)
        if lane is None:
            return ""
        standing = lane.standing
        standing = standing[standing["state"] == Shown.OPEN]
        if not len(standing):
            return ""
        event = standing[-1]
        missing = self._arrivals.missing_ranks(int(event["place"]))
        return self._title(event) + (f" waits for {few(missing)}" if missing else "")

    def spans(self, rank: int, last: int = 0) -> list[DrawnCall]:
        """The calls of a lane in this run (the last ones) as they are drawn, in the order of time."""
        events = self._calls[rank].of_run
        events = events[np.argsort(events["begin"], kind="stable")][-last:]
        return drawn(events, self._arrivals.met()[events["place"]], self.now, self._title)

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
    began = recording.curves.origin_ns if recording.curves is not None else 0
    count = max(recording.world_size, len(recording.ranks))
    made = Lanes(shown, count, min(most, max(len(shown), 1)), min(firsts + [began] * (began > 0), default=0))
    made.since_start = began > 0
    for rank in (*shown, *(set(recording.ranks) - set(shown))):
        made.add(rank, recording.ranks[rank].calls)
        made.hold(rank, recording.ranks[rank].marks)
    made.mark(recording, diagnosis)
    return made
