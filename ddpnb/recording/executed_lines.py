"""Which lines of the user's code a rank executed, in windows of its run, where Python can record it (3.12 and later)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from ddpnb.recording.calls import Site


@dataclass(frozen=True, slots=True)
class ExecutedLine:
    """A line that the rank executed in this run.

    ``first`` and ``last`` are the numbers of the windows in which it ran, from 1; ``windows`` is in how many.
    """

    site: Site
    first: int
    last: int
    windows: int


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a run, from a collective or an optimizer step to a later one; the last one is not over.

    ``calls`` (as the numbers of ``Call``) and ``steps`` count what the rank had begun when it opened. ``path`` is the
    index of the lines that ran in it. Ranks need not begin a window at each of these places: windows of two ranks
    are compared from one place that both have to another.
    """

    number: int
    began_ns: int
    calls: int
    steps: int
    path: int

    @property
    def place(self) -> tuple[int, int]:
        """What the rank had begun when it opened: (collectives, optimizer steps)."""
        return self.calls, self.steps


@dataclass(frozen=True, slots=True)
class ExecutedLines:
    """The lines that a rank executed: all of its run, and those of its last windows.

    A line that ran on any thread of the process counts; processes that it started do not. ``paths`` are the
    sets of lines of the windows, each as indices into ``lines`` in the order in which they first ran.
    """

    lines: tuple[ExecutedLine, ...] = ()
    windows: tuple[Window, ...] = ()
    paths: tuple[tuple[int, ...], ...] = ()
    dropped: int = 0  # lines for which there was no room
    within: Site | None = None  # the last line that was recorded of the innermost function that has not ended

    def of(self, window: Window) -> tuple[Site, ...]:
        """The lines that ran in this window, in the order in which they first ran."""
        path = self.paths[window.path] if 0 <= window.path < len(self.paths) else ()
        return tuple(self.lines[index].site for index in path if 0 <= index < len(self.lines))

    def between(self, first: int, last: int) -> frozenset[Site]:
        """The lines that ran in the windows with these numbers and those between them, as far as they are kept."""
        paths = {window.path for window in self.windows if first <= window.number <= last}
        indices = {index for path in paths if 0 <= path < len(self.paths) for index in self.paths[path]}
        return frozenset(self.lines[index].site for index in indices if 0 <= index < len(self.lines))

    def during(self, from_ns: int, to_ns: int) -> tuple[Window, ...]:
        """The windows that lie in this time at least in part, oldest first; times are of the host's monotonic clock."""
        first = max(0, bisect_right(self.windows, from_ns, key=lambda window: window.began_ns) - 1)
        return tuple(window for window in self.windows[first:] if window.began_ns <= to_ns)


@dataclass(frozen=True, slots=True)
class CommonWindow:
    """A part of a run from one place at which all of some ranks began a window to the next such place, or to now.

    ``calls`` and ``steps`` count what each rank had begun by then. ``first`` and ``last`` are the numbers of the windows of each
    rank in it, ``lines`` what it executed there.
    """

    calls: int
    steps: int
    first: Mapping[int, int]
    last: Mapping[int, int]
    lines: Mapping[int, frozenset[Site]]

    @property
    def only_some(self) -> frozenset[Site]:
        """The lines that some of the ranks executed, and others did not."""
        every = list(self.lines.values())
        return frozenset(line for lines in every for line in lines if not all(line in other for other in every))


def common_windows(ranks: Mapping[int, ExecutedLines]) -> tuple[CommonWindow, ...]:
    """The run in the smallest parts that can be compared between these ranks, oldest first; the last one is not over.

    Example:
        >>> window = common_windows({0: lines, 1: other_lines})[-1]
        >>> window.lines[1] - window.lines[0]
        frozenset({Site(file='train.py', line=41, function='main')})
    """
    begun = {rank: {window.place: window.number for window in lines.windows} for rank, lines in ranks.items()}
    # A rank comes to these places in one order: calls and steps are counted up.
    places = sorted(set[tuple[int, int]].intersection(*map(set, begun.values()))) if begun else []
    found: list[CommonWindow] = []
    for number, (calls, steps) in enumerate(places):
        first = {rank: numbers[calls, steps] for rank, numbers in begun.items()}
        if number + 1 < len(places):
            last = {rank: numbers[places[number + 1]] - 1 for rank, numbers in begun.items()}
        else:
            last = {rank: lines.windows[-1].number for rank, lines in ranks.items()}
        ran = {rank: lines.between(first[rank], last[rank]) for rank, lines in ranks.items()}
        found.append(CommonWindow(calls, steps, first, last, ran))
    return tuple(found)
