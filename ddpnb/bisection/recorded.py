"""What the recording of one run says of the first place of a failure: an optimizer step, a numbered checkpoint, a module.

Such a place is searched without probes: the recording bounds it from both sides. Where it leaves several places, it says
between which optimizer steps another run has to look at each.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddpnb.bisection.results import SearchResult
from ddpnb.bisection.space import AS_GIVEN, Kind, Probe, RangeSpace, Value
from ddpnb.bisection.varied import Trying, Varied
from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE, Site
from ddpnb.model.split import by_value
from ddpnb.recorder import protocol

START = "start"  # before the first place
_SIDES = 4  # that a sentence names


@dataclass(frozen=True, slots=True)
class Located:
    """Where a failure is first there, as far as a recording says.

    ``what``: the places are of, such as ``optimizer step``. ``places``: from the last at which it is not there to the first
    at which it is; two if nothing is left between them, none if it never is there. ``lines``: what was recorded, in sentences.
    ``missing``: why the recording does not say it; empty: it does. ``looks``: the first and last number of optimizer steps
    between which another run has to look at each; None: that would not help. ``facts``: for JSON.
    """

    what: str
    places: tuple[Value, ...] = ()
    lines: tuple[str, ...] = ()
    missing: str = ""
    looks: tuple[int, int] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def result(self) -> SearchResult:
        """As the result of a search."""
        if len(self.places) == 2 and not self.missing:
            return SearchResult("found", first_bad=self.places[1], last_good=self.places[0])
        if self.places or self.missing:
            return SearchResult("undecided", candidates=self.places[1:])
        return SearchResult("nothing fails")


def in_sides(sides: Sequence[Sequence[int]]) -> str:
    """``ranks 0, 1 and 3 | rank 2``: those on one side hold the same."""
    shown = " | ".join(phrases.ranks(side) for side in sides[:_SIDES])
    return f"{shown} | ..." if len(sides) > _SIDES else shown


def pair_of(sides: Sequence[Sequence[int]]) -> tuple[int, int] | None:
    """Two ranks that disagree: the first of each of the two largest sides."""
    return (sides[0][0], sides[1][0]) if len(sides) > 1 and sides[0] and sides[1] else None


def at_lines(sites: Mapping[int, Site]) -> str:
    """``rank 2 at train.py:40, ranks 0 and 1 at train.py:41``; empty where no line is known."""
    by_site = by_value((rank, site) for rank, site in sorted(sites.items()) if site != NO_SITE)
    shown = [f"{phrases.ranks(ranks)} at {site}" for site, ranks in list(by_site.items())[:_SIDES]]
    return ", ".join(shown)


def sites_to_json(sites: Mapping[int, Site]) -> list[dict[str, Any]]:
    """The same for JSON, as the places of a finding."""
    return [
        {"rank": rank, "file": site.file, "line": site.line, "function": site.function}
        for rank, site in sorted(sites.items())
        if site != NO_SITE
    ]


class RunSpace:
    """The only configuration of a program that runs as given: what is searched is read from its recording.

    Args:
        what: the places are of.
        command: the script with its arguments, a launch command, or the names of functions.
        own: it is a script, whose ranks ddpnb starts; None: functions, which no command line runs.
    """

    kind: Kind = "range"
    varied: tuple[Varied, ...] = ()

    def __init__(self, what: str, command: Sequence[str] = (), own: bool | None = None) -> None:
        self._command, self._own = tuple(command), own
        self.command = self._command if own is not None else ()  # as a title
        self.space = RangeSpace(what, (START, AS_GIVEN))
        self.looks: tuple[int, int] | None = None  # between these numbers of steps a run looks at each

    def trying(self, _probe: Probe) -> Trying:
        """What a run is: the program as given, which may be looked at more closely."""
        looks = {} if self.looks is None else {protocol.LOOKS: f"{self.looks[0]}..{self.looks[1]}"}
        return Trying(self._command, looks)

    def minimal(self, _causes: Sequence[str]) -> list[dict[str, str]]:
        """Empty: a place is searched."""
        return []

    def typed(self, trying: Trying, options: Sequence[str] = ()) -> str:
        """The program as a command line; empty for functions."""
        if self._own is None:
            return ""
        return f"ddpnb run {shlex.join([*options, *([] if self._own else ['--']), *trying.command])}"
