"""The parts of a run in which executed lines can be compared between ranks, with their names."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from ddpnb.recording.calls import CallState, Site
from ddpnb.recording.executed_lines import CommonWindow, ExecutedLines, common_windows
from ddpnb.recording.facts.once import once
from ddpnb.recording.recording import RankRecord, Recording

WHOLE = "run"
_PARTS = 32  # that are offered


@dataclass(frozen=True, slots=True)
class RunPart:
    """``window``: -1 is the last part, -2 the one before, ``"run"`` the run as a whole. ``title``: in words.

    ``ran``: what each rank executed in it, in the order in which the lines first ran. ``first``: the number of the window
    of each rank with which it begins; empty for the run as a whole.
    """

    window: int | str
    title: str
    ran: Mapping[int, tuple[Site, ...]]
    first: Mapping[int, int]


@once
def parts_of(recording: Recording) -> tuple[RunPart, ...]:
    """The last parts that all ranks with recorded lines have in common, the last one first, then the run as a whole."""
    lines = {rank: lines for rank, one in sorted(recording.ranks.items()) if (lines := one.executed) is not None}
    windows = common_windows(lines)
    # A window that begins at a call begins after the lines that led to it: while ranks are in that call, these count.
    until = min((number for rank in lines if (number := _current(recording.ranks[rank])) is not None), default=None)
    begun = [one for one in windows if until is None or one.calls <= until]
    found: list[RunPart] = []
    for back, one in enumerate(reversed(begun[-_PARTS:]), 1):
        begin = _place(recording, lines, one)
        following = begun[len(begun) - back + 1] if back > 1 else None
        title = f"since {begin}" if following is None else f"{begin} to {_place(recording, lines, following)}"
        found.append(RunPart(-back, title, _ran(lines, one, following), one.first))
    whole = {rank: tuple(line.site for line in own.lines) for rank, own in lines.items()}
    return (*found, RunPart(WHOLE, "the whole run", whole, {}))


def _current(record: RankRecord) -> int | None:
    """How many calls a rank had begun before the one that it is in."""
    last = record.calls[-1] if record.calls and record.ending is None else None
    return record.begun_before(last) if last is not None and last.state is not CallState.COMPLETED else None


def _ran(
    lines: Mapping[int, ExecutedLines], begin: CommonWindow, end: CommonWindow | None
) -> dict[int, tuple[Site, ...]]:
    found: dict[int, tuple[Site, ...]] = {}
    for rank, own in lines.items():
        paths = dict.fromkeys(
            window.path
            for window in own.windows
            if begin.first[rank] <= window.number and (end is None or window.number < end.first[rank])
        )
        indices = dict.fromkeys(index for path in paths if 0 <= path < len(own.paths) for index in own.paths[path])
        found[rank] = tuple(own.lines[index].site for index in indices if 0 <= index < len(own.lines))
    return found


def _place(recording: Recording, lines: Mapping[int, ExecutedLines], window: CommonWindow) -> str:
    """Where a part begins: ``all_reduce #57``, ``optimizer step 3``."""
    names = {_place_name(recording.ranks[rank], window.calls, window.steps) for rank in lines}
    return (names.pop() or "the beginning") if len(names) == 1 else f"call {window.calls} of each rank"


def _place_name(record: RankRecord, calls: int, steps: int) -> str:
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
