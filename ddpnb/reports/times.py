"""The times that the lines of a log state: of the lines that its facts name, and of events that other files show too."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice

from ddpnb.recording.report import LogLine

YEAR_S = 366 * 86400.0  # many logs name no year: times are seconds of one with 366 days
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d(?:[.,]\d{1,9})?)"
_STAMPS = tuple(
    re.compile(pattern)
    for pattern in (
        # Python's logging, containers, Slurm, torchrun's table
        rf"(?<!\d)(?P<Y>20\d\d)[-/](?P<M>\d\d)[-/](?P<D>\d\d)[T _]{_CLOCK}(?P<zone>Z| ?UTC| ?[+-]\d\d:?\d\d)?(?!\d)",
        rf"\[[EWIF]?(?P<M>\d\d)(?P<D>\d\d) {_CLOCK}|(?<![^\s])[EWIF](?P<M2>\d\d)(?P<D2>\d\d) (?P<h2>\d\d):(?P<m2>\d\d):(?P<s2>\d\d(?:\.\d{{1,9}})?)",
        rf"(?P<B>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {{1,2}}(?P<D>\d{{1,2}}) {_CLOCK}",
        rf"(?<!\d)(?P<M>\d\d)/(?P<D>\d\d)/20\d\d {_CLOCK}",
        r"\"[@_]{0,2}(?:time|ts|timestamp|realtime_timestamp)\": ?\"?(?P<epoch>1\d{9}(?:\.\d{1,9})?|1\d{12}|1\d{15}|1\d{18})\b",
    )
)
_WITHIN = 160  # characters of a line in which its times are
_NEAR = 60  # lines before and after one without a time
_MOST = 1000  # lines
_MOST_EVENTS = 20
#: what several files show of one moment, in the same words
_EVENTS = tuple(
    (word, re.compile(pattern))
    for word, pattern in (
        ("Init COMPLETE", r"commId (0x[0-9a-f]{1,20})[^\n]{0,80}Init COMPLETE"),
        (
            "Rendezvous complete",
            r"Rendezvous complete for workers[^\n]{0,40}(restart_count=\d{1,6} master_addr=\S{1,200} master_port=\d{1,6})",
        ),
        ("CANCELLED AT", r"((?:STEP|JOB) [\w.+]{1,40}) ON [^\n]{1,200} CANCELLED AT"),
    )
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """A time as a line states it.

    Args:
        seconds: of the year.
        utc: the line says its zone; else it is of a clock of which only the file is known.
    """

    seconds: float
    utc: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """When a line was written: not before the first of two times, not after the other. None: not known."""

    after: Stamp | None
    before: Stamp | None


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a file.

    Args:
        moments: by the number of a line.
        events: what other files may show too, with when.
        zone_s: by how much its own clock is ahead of UTC, where lines state both.
    """

    moments: Mapping[int, Moment] = field(default_factory=dict[int, Moment])
    events: Mapping[str, Stamp] = field(default_factory=dict[str, Stamp])
    zone_s: float | None = None


NO_TIMES = Times()


def stamps(line: str) -> list[Stamp]:
    """The times that a line states, that of its collector first.

    Example:
        >>> stamps("2026-01-01T03:00:00+01:00 [rank0]:[E0101 03:00:00.5 ProcessGroupNCCL.cpp:616] ...")
        [Stamp(seconds=7200.0, utc=True), Stamp(seconds=10800.5, utc=False)]
    """
    text = line[:_WITHIN] if not line.startswith("{") else line[:4000]
    found = {match.start(): match for pattern in _STAMPS for match in pattern.finditer(text)}
    made = (
        _stamp({name.rstrip("2"): one for name, one in found[at].groupdict().items() if one}) for at in sorted(found)
    )
    return [stamp for stamp in made if stamp is not None]


def _stamp(said: Mapping[str, str]) -> Stamp | None:
    if epoch := said.get("epoch"):
        whole = epoch.partition(".")[0]
        seconds = float(epoch) / 10 ** (len(whole) - 10)
        return of_epoch(seconds, utc=True)
    month = _MONTHS.index(said["B"].lower()) + 1 if "B" in said else int(said["M"])
    second = float(said["s"].replace(",", "."))
    try:
        day = datetime(2000, month, int(said["D"]), int(said["h"]), int(said["m"]), tzinfo=UTC)
    except ValueError:
        return None
    zone = said.get("zone", "").strip()
    return Stamp(_of_year(day) + second - _offset(zone), utc=bool(zone))


def of_epoch(seconds: float, *, utc: bool = False) -> Stamp:
    """A time from the seconds since 1970."""
    return Stamp(_of_year(datetime.fromtimestamp(seconds, UTC)), utc)


def _of_year(moment: datetime) -> float:
    return (moment.replace(year=2000) - datetime(2000, 1, 1, tzinfo=UTC)).total_seconds()


def _offset(zone: str) -> float:
    if zone in ("", "Z", "UTC"):
        return 0.0
    digits = zone[1:].replace(":", "")
    return (-1 if zone[0] == "-" else 1) * (int(digits[:2]) * 3600.0 + int(digits[2:]) * 60)


def times_of(raw: str, first: int, lines: Iterable[LogLine]) -> Times:
    """The times of a file.

    Args:
        raw: its text, with all prefixes.
        first: the number of its first line.
        lines: of which the times are wanted.
    """
    some = list(islice(lines, _MOST))
    if not some:
        return NO_TIMES
    text = _Lines(raw)
    moments = {
        line.number: moment for line in some if (moment := text.moment(line.number - first, line.words)) is not None
    }
    both = [
        found
        for line in some
        for found in [stamps(text.line(line.number - first))]
        if len({one.utc for one in found}) == 2
    ]
    zones = [own.seconds - utc.seconds for found in both for own in found[:2] for utc in found[:2] if utc.utc > own.utc]
    return Times(
        moments, dict(_events(raw, text)), round(sorted(zones)[len(zones) // 2] / 900) * 900.0 if zones else None
    )


def _events(raw: str, text: _Lines) -> Iterator[tuple[str, Stamp]]:
    for word, pattern in _EVENTS:
        for match in islice(pattern.finditer(raw), _MOST_EVENTS) if word in raw else ():
            if found := stamps(text.line(text.at(match.start()))):
                yield match[1], found[0]


class _Lines:
    """A text by its lines."""

    def __init__(self, raw: str) -> None:
        self._raw = raw
        self._starts = [0, *(match.end() for match in re.finditer("\n", raw))]

    def at(self, offset: int) -> int:
        return bisect_right(self._starts, offset) - 1

    def line(self, number: int) -> str:
        if not 0 <= number < len(self._starts):
            return ""
        return self._raw[self._starts[number] : self._starts[number] + 4000].partition("\n")[0]

    def moment(self, number: int, words: str) -> Moment | None:
        """When a line was written; None where it does not contain these words, or nothing near it states a time."""
        if re.split(r'["\\*]', words[:20])[0] not in self.line(number):
            return None
        after = self._near(range(number, max(number - _NEAR, -1), -1))
        before = self._near(range(number, number + _NEAR))
        return Moment(after, before) if after or before else None

    def _near(self, numbers: Iterable[int]) -> Stamp | None:
        return next((found[0] for number in numbers if (found := stamps(self.line(number)))), None)
