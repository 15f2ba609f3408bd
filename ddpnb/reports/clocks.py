"""One clock for the files of a job: which of them comes first of two lines of different files, if that can be known.

Times with a zone are of UTC. Others are of a clock of which only the file is known. Two such clocks are one where the files come from
one host; their difference is seen where lines state both times, or where both files show one event: the time-out of one collective,
the end of one process, a rendezvous. Clocks of hosts agree to about a second.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from ddpnb.recording.report import LogLine
from ddpnb.reports import facts as reported
from ddpnb.reports.facts import Found
from ddpnb.reports.times import NO_TIMES, YEAR_S, Stamp, Times, of_epoch

_UTC = ""  # the name of that clock; of another one its file
_HOSTS_S = 1.5  # by so much clocks of hosts may differ
_EVENT_S = 60.0  # an event is seen so much later in another file, at most
_ZONE_S = 900.0  # zones differ by quarters of an hour
_MOST = 64  # files with an event of their own that are compared
_ATTEMPT = re.compile(r"(?P<agent>.{0,1000}?)(?:^|[/\\])attempt_(?P<number>\d{1,6})[/\\]\d{1,6}[/\\][^/\\]{0,200}$")


@dataclass(frozen=True)
class _Place:
    """Where a clock is: on which scale, by how much ahead of it, and how exactly that is known."""

    scale: str
    ahead_s: float = 0.0
    exact_s: float = 0.0


_At = tuple[_Place, float] | None
_Span = tuple[_At, _At]  # not before, not after


class Clocks:
    """The clocks of files.

    Args:
        found: the facts of each file.
    """

    def __init__(self, found: Sequence[Found]) -> None:
        self._times: dict[str, list[Times]] = defaultdict(list)
        for one in found:
            if one.extent.times is not NO_TIMES and one.extent.times not in self._times[one.path]:
                self._times[one.path].append(one.extent.times)
        self._places: dict[str, _Place] = {_UTC: _Place(_UTC)}
        for path in sorted({one.path for one in found}):
            self._places.setdefault(path, _Place(path))
        if len(self._places) > 2:
            self._join(found)

    def before(self, line: LogLine | None, other: LogLine | None) -> bool | None:
        """Whether a line was written before another one; None: not known."""
        if line is None or other is None:
            return None
        if line.path == other.path:
            return line.number < other.number
        return self._compared(self._of_line(line), self._of_line(other))

    def ended_before(self, end: reported.Ended, other: reported.Ended) -> bool | None:
        """Whether a process ended, or raised, before another one; None: not known."""
        if end.at is None or other.at is None:
            return None
        if end.at.path != other.at.path or (end.table and other.table and not end.root | other.root):
            return self._compared(self._of_end(end), self._of_end(other))
        if end.table and other.table:  # a table is not in the order of time: it names the first
            return None if end.root == other.root else end.root
        return None if end.table or other.table else self.before(end.at, other.at)

    def in_order(self, lines: Iterable[LogLine]) -> tuple[list[LogLine], bool]:
        """Lines in the order of time, and whether that is known; else by file."""
        by_file = sorted(lines, key=lambda line: (line.path, line.number))
        if len({line.path for line in by_file}) < 2:
            return by_file, True
        times = [next((at for at in self._of_line(line) if at is not None), None) for line in by_file]
        known = [(at[1], line) for at, line in zip(times, by_file, strict=True) if at is not None]
        if len(known) < len(by_file) or len({at[0].scale for at in times if at is not None}) > 1:
            return by_file, False
        return [line for _, line in sorted(known, key=lambda one: one[0])], True

    def of_table(self, path: str, clock_s: float) -> tuple[str, float]:
        """A time of torchrun's table, with the scale on which it can be compared."""
        place = self._places.get(path, _Place(path))
        return place.scale, clock_s - place.ahead_s

    def _compared(self, mine: _Span, its: _Span) -> bool | None:
        if self._apart(mine[1], its[0]):
            return True
        return False if self._apart(its[1], mine[0]) else None

    def _of_end(self, end: reported.Ended) -> _Span:
        assert end.at is not None
        if not end.table:
            return self._of_line(end.at)
        at = self._on_scale(end.at.path, of_epoch(end.clock_s)) if end.clock_s else None
        return at, at

    def _of_line(self, line: LogLine) -> _Span:
        for times in self._times.get(line.path, ()):
            if (moment := times.moments.get(line.number)) is not None:
                return self._on_scale(line.path, moment.after), self._on_scale(line.path, moment.before)
        return None, None

    def _on_scale(self, path: str, stamp: Stamp | None) -> _At:
        if stamp is None:
            return None
        place = self._places[_UTC if stamp.utc else path]
        return place, stamp.seconds - place.ahead_s

    def _apart(self, last: _At, first: _At) -> bool:
        """Whether the first time of a line is after the last one of another."""
        if last is None or first is None or last[0].scale != first[0].scale:
            return False
        return _difference(first[1], last[1]) > last[0].exact_s + first[0].exact_s + _HOSTS_S

    # -- joining

    def _join(self, found: Sequence[Found]) -> None:
        """Put clocks whose difference is known on one scale; those about which events contradict each other on none."""
        edges = [*self._of_zones(), *_of_hosts(found), *self._of_events(found)]
        for _ in range(2):
            contradicted = self._joined(edges)
            if not contradicted:
                return
            edges = [edge for edge in edges if contradicted.isdisjoint(edge[:2])]
            self._places = {path: _Place(path) for path in self._places}

    def _joined(self, edges: Sequence[tuple[str, str, float, float]]) -> set[str]:
        contradicted: set[str] = set()
        for one, other, ahead_s, exact_s in sorted(edges, key=lambda edge: edge[3]):
            here, there = self._places[one], self._places[other]
            # the clock of the other file shows so much more
            shift = here.ahead_s + ahead_s - there.ahead_s
            if here.scale == there.scale:
                if abs(shift) > here.exact_s + there.exact_s + exact_s + _HOSTS_S:
                    contradicted |= {one, other} - {_UTC}
                continue
            if here.scale != _UTC and there.scale == _UTC:
                here, there, shift = there, here, -shift
            for path, place in self._places.items():
                if place.scale == there.scale:
                    exact = place.exact_s + exact_s + here.exact_s
                    self._places[path] = _Place(here.scale, place.ahead_s + shift, exact)
        return contradicted

    def _of_zones(self) -> Iterator[tuple[str, str, float, float]]:
        for path, every in self._times.items():
            for times in every:
                if times.zone_s is not None:
                    yield _UTC, path, times.zone_s, 0.0

    def _of_events(self, found: Sequence[Found]) -> Iterator[tuple[str, str, float, float]]:
        """By how much the clock of a file is ahead of that of another, by an event that both show."""
        shown: dict[object, dict[str, Stamp]] = defaultdict(dict)
        for path, every in self._times.items():
            for event, stamp in ((event, stamp) for times in every for event, stamp in times.events.items()):
                shown[event].setdefault(path, stamp)
        for one in found:
            for event, stamp in self._seen(one):
                shown[event].setdefault(one.path, stamp)
        for event, stamps in shown.items():
            for (path, stamp), (other, its) in combinations(list(stamps.items())[:_MOST], 2):
                mine, its_clock = (_UTC if one.utc else where for one, where in ((stamp, path), (its, other)))
                seen = _difference(its.seconds, stamp.seconds)
                ahead_s = round(seen / _ZONE_S) * _ZONE_S
                late_s = abs(seen - ahead_s)
                if mine != its_clock and late_s <= _EVENT_S:
                    yield mine, its_clock, ahead_s, late_s
                elif mine != its_clock and isinstance(event, str):  # a rendezvous ends on all hosts at once
                    yield mine, its_clock, seen, _HOSTS_S

    def _seen(self, one: Found) -> Iterator[tuple[object, Stamp]]:
        """Time-outs of collectives, and ends of ranks, with when they were written."""
        every = self._times[one.path]
        for fact in one.facts:
            if isinstance(fact, reported.Ended) and fact.speaker.rank is not None:
                stamp = of_epoch(fact.clock_s) if fact.table and fact.clock_s else _exact(every, fact.at)
                if stamp is not None and (fact.table or fact.last):
                    yield ("end", fact.speaker.rank), stamp
            elif (
                isinstance(fact, reported.CallSeen)
                and fact.timeout_s
                and fact.seq
                and (stamp := _exact(every, fact.at))
            ):
                yield ("call", fact.group.name, fact.seq, fact.signature.op), stamp


def _exact(every: Iterable[Times], line: LogLine | None) -> Stamp | None:
    """The time of a line that states it itself."""
    if line is None:
        return None
    moments = (times.moments[line.number] for times in every if line.number in times.moments)
    return next((moment.after for moment in moments if moment.after == moment.before), None)


def _difference(seconds: float, before: float) -> float:
    """Between two times of a year, which may be on both sides of its end."""
    return (seconds - before + YEAR_S / 2) % YEAR_S - YEAR_S / 2


def _of_hosts(found: Sequence[Found]) -> Iterator[tuple[str, str, float, float]]:
    """Files of one host: those of one torchrun, and those that name the same host alone."""
    by_host: dict[str, dict[str, None]] = defaultdict(dict)
    for one in found:
        hosts = {speaker.host for speaker in map(reported.speaker_of, one.facts) if speaker.host}
        if (match := _ATTEMPT.match(one.path)) is not None:
            by_host[f"/{match['agent']}"][one.path] = None
        elif len(hosts) == 1:
            by_host[hosts.pop()][one.path] = None
    for paths in by_host.values():
        first, *others = paths
        for other in others:
            yield first, other, 0.0, 0.0


def earlier_attempts(paths: Iterable[str]) -> set[str]:
    """The files of torchrun's earlier attempts: ``attempt_0/1/stderr.log`` beside ``attempt_1/1/stderr.log``."""
    found = {path: match for path in paths if (match := _ATTEMPT.match(path)) is not None}
    last: dict[str, int] = {}
    for match in found.values():
        last[match["agent"]] = max(last.get(match["agent"], 0), int(match["number"]))
    return {path for path, match in found.items() if int(match["number"]) < last[match["agent"]]}
