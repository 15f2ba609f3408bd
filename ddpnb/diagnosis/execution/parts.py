"""The part of a run in which ranks part: what each of them executed in it, and before."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ddpnb.model.calls import Site
from ddpnb.model.executed_lines import ExecutedLine, ExecutedLines, Window, common_windows
from ddpnb.model.recording import RankRecord, Recording

Place = tuple[str, int]  # a file and a line: on a line may be code of several functions


@dataclass(frozen=True, slots=True)
class Executed:
    """What one rank executed.

    ``lines``: in the part, in the order in which they first ran there. ``run``: from the beginning of the run to the end of
    the part, for each line where it is, in how many windows of the run it ran, and the last of them. ``before``: before the part.
    ``step``: the number of the first window since the last optimizer step before the end of the part.
    """

    lines: Mapping[Place, Site]
    run: Mapping[Place, ExecutedLine]
    before: frozenset[Place]
    step: int = 0


def place(site: Site) -> Place:
    return site.file, site.line


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a run on several ranks. ``since``: where it begins, in words.

    ``aligned``: it lies between the same places on all of them. Else what one executed in it, another may have before or after it.
    ``calls``: how many calls each of them had begun when it began; 0 where that is not known.
    """

    ranks: Mapping[int, Executed]
    since: str
    aligned: bool
    calls: int = 0


def latest(recording: Recording, calls: Mapping[int, int | None]) -> Part | None:
    """From the last place that ranks have in common, before certain calls, to these; None: the lines of one are not recorded.

    Args:
        recording: what is known.
        calls: of each rank how many calls it had begun before its own; None: until now.
    """
    recorded = _recorded(recording, calls)
    if recorded is None:
        return None
    until = min((number for number in calls.values() if number is not None), default=None)
    # A window that begins at a call begins after the lines that led to it.
    windows = [window for window in common_windows(recorded) if until is None or window.calls <= until]
    last = windows[-1] if windows else None
    begin = place_name(recording.ranks[min(recorded)], last.calls, last.steps) if last is not None else ""
    first = last.first if last is not None else dict.fromkeys(recorded, 0)
    parts = {
        rank: [
            window
            for window in lines.windows
            if window.number >= first[rank] and ((own := calls[rank]) is None or window.calls <= own)
        ]
        for rank, lines in recorded.items()
    }
    if not all(parts.values()):
        return None
    ran = {rank: _executed(recorded[rank], windows) for rank, windows in parts.items()}
    return Part(ran, f"Since {begin}" if begin else "", aligned=True, calls=last.calls if last is not None else 0)


def between(recording: Recording, times: Mapping[int, tuple[int, int]], places: Mapping[int, Site]) -> Part | None:
    """From one time of each rank to a later one; None: not recorded, or too long ago.

    Args:
        recording: what is known.
        times: of each rank, nanoseconds of the host's monotonic clock.
        places: where each rank was at the later time. What it ran after it in the same step does not count; in a longer
            window that is not known.
    """
    recorded = _recorded(recording, times)
    if recorded is None:
        return None
    windows = {rank: lines.during(*times[rank]) for rank, lines in recorded.items()}
    for rank, (began, _) in times.items():
        kept = recorded[rank].windows
        if not windows[rank] or (kept[0].number > 1 and kept[0].began_ns > began):
            return None
    ran = {rank: _until(recording.ranks[rank], windows[rank], places.get(rank)) for rank in recorded}
    return Part(ran, "", aligned=False)


def _until(record: RankRecord, windows: Sequence[Window], at: Site | None) -> Executed:
    assert record.executed is not None
    whole, last = _executed(record.executed, windows), windows[-1]
    following = next((window.steps for window in record.executed.windows if window.number > last.number), record.steps)
    ran = list(map(place, record.executed.of(last)))
    if at is None or place(at) not in ran or following > last.steps + 1:
        return whole
    earlier = {place(site) for window in windows[:-1] for site in record.executed.of(window)}
    later = set(ran[ran.index(place(at)) + 1 :]) - earlier
    return replace(whole, lines={key: site for key, site in whole.lines.items() if key not in later})


def _recorded(recording: Recording, ranks: Iterable[int]) -> dict[int, ExecutedLines] | None:
    """The lines of at least two ranks, if those of all are recorded without a gap: else it is not known what did not run."""
    found = {rank: record.executed for rank in ranks if (record := recording.ranks.get(rank)) is not None}
    whole = {rank: lines for rank, lines in found.items() if lines is not None and lines.windows and not lines.dropped}
    return whole if len(whole) == len(found) > 1 else None


def _executed(lines: ExecutedLines, windows: Iterable[Window]) -> Executed:
    chosen = list(windows)
    first, last = chosen[0].number, chosen[-1].number
    return Executed(
        {place(site): site for window in chosen for site in lines.of(window)},
        {place(line.site): line for line in lines.lines if line.first <= last},
        frozenset(place(line.site) for line in lines.lines if line.first < first),
        next((window.number for window in lines.windows if window.steps == chosen[-1].steps), first),
    )


def place_name(record: RankRecord, calls: int, steps: int) -> str:
    """The place at which a window of a rank began, in words: ``all_reduce #57``, ``optimizer step 3``; empty for the beginning."""
    if not calls and not steps:
        return ""
    places = [window.place for window in record.executed.windows] if record.executed is not None else []
    at = places.index((calls, steps)) if (calls, steps) in places else 0
    if at and places[at - 1][0] == calls:
        return f"optimizer step {steps}"
    place = bisect_left(record.calls, calls - 1, key=record.begun_before)
    call = record.calls[place] if place < len(record.calls) else None
    return call.title if call is not None and record.begun_before(call) == calls - 1 else f"call {calls}"
