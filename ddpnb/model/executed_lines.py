"""Which lines of the user's code a rank executed, in windows of its run, where Python can record it (3.12 and later)."""

from __future__ import annotations

from dataclasses import dataclass

from ddpnb.model.calls import Site


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

    def of(self, window: Window) -> tuple[Site, ...]:
        """The lines that ran in this window, in the order in which they first ran."""
        path = self.paths[window.path] if 0 <= window.path < len(self.paths) else ()
        return tuple(self.lines[index].site for index in path if 0 <= index < len(self.lines))

    def between(self, first: int, last: int) -> frozenset[Site]:
        """The lines that ran in the windows with these numbers and those between them, as far as they are kept."""
        paths = {window.path for window in self.windows if first <= window.number <= last}
        indices = {index for path in paths if 0 <= path < len(self.paths) for index in self.paths[path]}
        return frozenset(self.lines[index].site for index in indices if 0 <= index < len(self.lines))
