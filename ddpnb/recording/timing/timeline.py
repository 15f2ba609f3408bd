"""One rank's time line: the intervals between its marks, and what blocked its main thread in each.

A mark is a moment at which the rank read its clocks. Calls claim time in the interval in which they
began. What they claim together cannot be more than the time in which the main thread neither used a
CPU nor stood in the queue for one: that is how communication which ran while the rank computed is
separated from communication for which it waited.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable
from copy import copy
from statistics import median
from typing import NamedTuple

from ddpnb.recording.account import PARTS, Parts
from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.marks import HeldTime, Mark, MarkKind

#: what time is claimed for: (the rank that was waited for, the line that waited), communication, or that it was held
Key = tuple[int, Site]
COMMUNICATION: Key = (-1, NO_SITE)
HELD: Key = (-2, NO_SITE)
Claims = dict[Key, int]

_KEPT = 4096  # intervals; older ones are only kept in the sums
_TRAINS = 3  # steps: from so many on, what came before the first is the start and not the training
_KEYS = 8192  # different (rank, line) of one rank


class Interval:
    """The time between two marks. Times are nanoseconds.

    ``idle``: how long the main thread used no CPU, None where that is not known.
    ``certain``: claims that end at a moment at which the rank surely continued; ``uncertain``: claims
    that may hold time in which it computed.
    """

    __slots__ = ("began", "certain", "closed_by", "data", "ended", "idle", "uncertain")

    def __init__(self, began: int) -> None:
        self.began = began
        self.ended: int | None = None
        self.closed_by: MarkKind | None = None
        self.idle: int | None = None
        self.data = 0
        self.certain: Claims = {}
        self.uncertain: Claims = {}

    def claims(self, queued: float = 0.0) -> Claims:
        """What was claimed, as far as it fits beside so much time in the queue for a core."""
        if self.ended is None:
            return _sum(self.certain, self.uncertain)
        room = max(0, self.ended - self.began - self.data)
        if self.idle is not None:
            room = max(0.0, min(room, self.idle - queued))
        fitting = _shrunk(self.certain, room)
        return _sum(fitting, _shrunk(self.uncertain, room - sum(fitting.values()))) if self.uncertain else fitting

    def copy(self) -> Interval:
        new = Interval(self.began)
        new.ended, new.closed_by, new.idle, new.data = self.ended, self.closed_by, self.idle, self.data
        new.certain, new.uncertain = self.certain.copy(), self.uncertain.copy()
        return new


def _shrunk(claims: Claims, room: float) -> Claims:
    total = sum(claims.values())
    if total <= room:
        return claims
    share = max(0.0, room) / total
    return {key: int(value * share) for key, value in claims.items()}


def _sum(first: Claims, second: Claims) -> Claims:
    if not first or not second:
        return first or second
    return {key: first.get(key, 0) + second.get(key, 0) for key in first.keys() | second.keys()}


class Spent(NamedTuple):
    """What was claimed before the start was over, and after it; and the time inside data loaders after it."""

    start: Counter[Key]
    training: Counter[Key]
    data: int


class Timeline:
    """Takes the marks of one rank in their order, and the claims of its calls."""

    def __init__(self) -> None:
        self.main: int | None = None  # the thread that makes the marks
        self.began: int | None = None  # the run, on this rank
        self.ended: int | None = None
        self.first: int | None = None  # a call, backward pass or step: before it the rank started up
        self.last: int | None = None
        self.steps = 0
        self.threads = 0
        self._intervals = [Interval(0)]
        self._starts = [0]
        self._sums: Counter[Key] = Counter()  # of intervals that are not kept any more
        self._start_sums: Counter[Key] = Counter()
        self._data = 0
        self._work: Mark | None = None  # the first after a backward pass or step
        self._mark: Mark | None = None  # the last
        self._number = -1
        self._held = HeldTime()
        self._first_step: Mark | None = None
        self._last_step: Mark | None = None
        self._first_cpu: Mark | None = None
        self._last_cpu: Mark | None = None
        self._step_parts: deque[Parts] = deque(maxlen=_KEPT)  # of steps whose intervals are not kept
        self._queue: tuple[list[int], list[int]] = ([], [])  # moments, and time in the queue for a core until then

    # -- marks

    def take(self, marks: Iterable[Mark]) -> None:
        """Add marks; those that are old, of another thread or from before the last are left out."""
        for mark in marks:
            if mark.number <= self._number or (self._mark is not None and mark.at_ns < self._mark.at_ns):
                continue
            self._number = mark.number
            if mark.kind in ("held", "resumed") or self._held.since:
                for began, ended in self._held.take((mark,)):
                    self.claim(began, HELD, ended - began, certain=True)
            if mark.kind in ("held", "resumed"):
                continue
            if self.main is None:
                self.main = mark.thread
            if mark.thread == self.main:
                self._add(mark)

    def _add(self, mark: Mark) -> None:
        before, self._mark = self._mark, mark
        current = self._intervals[-1]
        current.ended, current.closed_by = mark.at_ns, mark.kind
        if before is not None:
            current.idle = max(0, mark.at_ns - before.at_ns - max(0, mark.thread_ns - before.thread_ns))
            current.data = max(0, mark.data_ns - before.data_ns)
        self._data = max(self._data, mark.data_ns)
        self._intervals.append(Interval(mark.at_ns))
        self._starts.append(mark.at_ns)
        self.steps, self.threads = max(self.steps, mark.steps), mark.threads or self.threads
        if mark.kind == "begin":
            self.began = mark.at_ns
        elif mark.kind == "end":
            self.ended = mark.at_ns
        else:
            self.saw(mark.at_ns)
            self._work = self._work or mark
        if mark.kind == "step":
            self._first_step, self._last_step = self._first_step or mark, mark
        if mark.cpu_ns:
            self._first_cpu, self._last_cpu = self._first_cpu or mark, mark

    def queued(self, at: int, length: int) -> None:
        """Time that the main thread has spent in the run queue up to this moment (both only grow)."""
        moments, lengths = self._queue
        if moments and (at <= moments[-1] or length < lengths[-1]):
            return
        moments.append(at)
        lengths.append(length)
        if len(moments) > 4 * _KEPT:
            del moments[1:-1:2], lengths[1:-1:2]

    def _claims(self, interval: Interval) -> Claims:
        if not (interval.certain or interval.uncertain):
            return {}
        if interval.ended is None or len(self._queue[0]) < 2:
            return interval.claims()
        return interval.claims(self._queued_until(interval.ended) - self._queued_until(interval.began))

    def _queued_until(self, at: int) -> float:
        """Between two readings, linear growth is assumed."""
        moments, lengths = self._queue
        place = bisect_right(moments, at)
        if place == 0:
            return lengths[0]
        if place == len(moments):
            return lengths[-1]
        share = (at - moments[place - 1]) / (moments[place] - moments[place - 1])
        return lengths[place - 1] + share * (lengths[place] - lengths[place - 1])

    def saw(self, at: int) -> None:
        """Training was active at this moment."""
        self.first = at if self.first is None else min(self.first, at)
        self.last = at if self.last is None else max(self.last, at)

    # -- claims

    def claim_hold(self, now: int) -> None:
        """It is held, and has been until now."""
        if self._held.since:
            self.claim(self._held.since, HELD, now - self._held.since, certain=True)

    def after(self, at: int) -> tuple[int, MarkKind] | None:
        """The first mark after this moment: when, and which."""
        place = bisect_right(self._starts, at) - 1
        if place < 0:
            return None
        interval = self._intervals[place]
        return (
            (interval.ended, interval.closed_by)
            if interval.ended is not None and interval.closed_by is not None
            else None
        )

    def at(self, moment: int) -> Interval | None:
        """The interval of this moment; None when it is not kept any more."""
        place = bisect_right(self._starts, moment) - 1
        return self._intervals[place] if place >= 0 else None

    def claim(self, at: int, key: Key, length: int, *, certain: bool) -> None:
        """So long from ``at`` on the main thread stood there for ``key``."""
        interval = self.at(at)
        claims = self._sums if interval is None else interval.certain if certain else interval.uncertain
        if length > 0 and (key in claims or len(claims) < _KEYS):
            claims[key] = claims.get(key, 0) + length

    def fold(self) -> None:
        """Drop the oldest intervals once there are too many; their sums stay."""
        if len(self._intervals) <= _KEPT:
            return
        least, most = len(self._intervals) - _KEPT // 2, len(self._intervals) - 1
        many = next((n for n in range(least, most) if self._intervals[n - 1].closed_by == "step"), most)
        old = self._intervals[:many]
        self._step_parts.extend(self._steps(old))
        for interval in old:
            sums = self._sums if interval.began >= self._training else self._start_sums
            for key, length in self._claims(interval).items():
                if key in sums or len(sums) < _KEYS:
                    sums[key] += length
        del self._intervals[:many], self._starts[:many]

    # -- sums

    def copy(self) -> Timeline:
        """Another with the same marks and claims, to which claims can be added for a moment."""
        new = copy(self)
        new._intervals = [interval.copy() for interval in self._intervals]
        new._sums = self._sums.copy()
        return new

    @property
    def _training(self) -> int:
        return self._work.at_ns if self._work is not None and self.steps >= _TRAINS else 0

    @property
    def started(self) -> int | None:
        """The end of the start: the first backward pass or step is over; without steps, the first call."""
        return self._training or self.first

    def spent(self) -> Spent:
        """Where the time went, as far as it was claimed."""
        training, start, trained = self._training, Counter(self._start_sums), Counter(self._sums)
        for interval in self._intervals:
            sums = trained if interval.began >= training else start
            for key, length in self._claims(interval).items():
                sums[key] += length
        before = self._work.data_ns if training and self._work is not None else 0
        return Spent(start, trained, max(0, self._data - before))

    def step(self) -> Parts | None:
        """The medians of a step's parts, over the last steps, the very first left out."""
        parts = [*self._step_parts, *self._steps(self._intervals)]
        if len(parts) > 1 and len(parts) >= self.steps:
            parts = parts[1:]
        if not parts:
            return None
        return Parts(*(median(getattr(step, name) for step in parts) for name in PARTS))

    def _steps(self, intervals: list[Interval]) -> list[Parts]:
        """The parts of every step that these intervals hold whole: they end at a step, and so did what was before."""
        steps: list[Parts] = []
        length = data = waiting = communication = held = 0
        whole = True
        for interval in intervals:
            if interval.ended is None:
                break
            claims = self._claims(interval)
            talked, stood = claims.get(COMMUNICATION, 0), claims.get(HELD, 0)
            waiting += sum(claims.values()) - talked - stood
            communication, held = communication + talked, held + stood
            length, data = length + interval.ended - interval.began, data + interval.data
            whole = whole and interval.began > 0
            if interval.closed_by in ("step", "begin"):
                if interval.closed_by == "step" and whole:
                    compute = max(0, length - waiting - communication - data - held)
                    steps.append(Parts(*(ns * 1e-9 for ns in (compute, waiting, communication, data, held))))
                length = data = waiting = communication = held = 0
                whole = True
        return steps

    @property
    def pace(self) -> float | None:
        """Optimizer steps per second, from the end of the first step to the end of the last."""
        first, last = self._first_step, self._last_step
        if first is None or last is None or last.at_ns <= first.at_ns or last.steps <= first.steps:
            return None
        return (last.steps - first.steps) / (last.at_ns - first.at_ns) * 1e9

    def utilisation(self, threads: int) -> float | None:
        """CPU time of the process per thread and wall time: between steps if there are two, else of the run."""
        first, last = self._first_step, self._last_step
        if first is None or last is None or last.at_ns <= first.at_ns or not last.cpu_ns:
            first, last = self._first_cpu, self._last_cpu
        if first is None or last is None or last.at_ns <= first.at_ns or threads <= 0:
            return None
        return max(0, last.cpu_ns - first.cpu_ns) / ((last.at_ns - first.at_ns) * threads)
