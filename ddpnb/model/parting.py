"""Where the paths of ranks part: the decision, the way of each side, and what had been decided differently without harm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ddpnb.model.calls import NO_SITE, Site

#: ``operation``: equal decisions, but different collectives (decided inside a library).
PartingKind = Literal["loop", "branch", "exception", "call", "end", "operation"]


@dataclass(frozen=True, slots=True)
class Way:
    """The way of one side.

    ``to``: the first line that only this side ran, or to which the jump led; ``NO_SITE``: it left the function.
    ``says``: the way in words: ``entered the loop``, ``left the loop``, ``raised ValueError``, ``returned``.
    ``calls``: collectives that only this side made, oldest first: ``all_reduce #12 of default_pg at train.py:40``; the first 8.
    ``before``: of each rank, (how often it had gone this way before, how often it had come to this decision), as far back
    as its path reaches.
    """

    ranks: tuple[int, ...]
    to: Site = NO_SITE
    says: str = ""
    calls: tuple[str, ...] = ()
    before: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])

    @property
    def new(self) -> bool:
        """Whether none of its ranks had gone this way before, though it had come here."""
        return bool(self.before) and all(taken == 0 < times for taken, times in self.before.values())


@dataclass(frozen=True, slots=True)
class Harmless:
    """A decision that went differently, after which all made the same collectives. ``ways``: ranks and the line of each side."""

    site: Site
    text: str
    ways: tuple[tuple[tuple[int, ...], Site], ...] = ()


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two or more sides part.

    ``site``: the line of the decision, of the call that raised, or of the call that only one side made; observed on all sides.
    ``text``: the expression that decides, as it is in the source; empty where the source is not known.
    ``callers``: the lines by which the function was entered, outermost first.
    ``odd``: the ranks that left the others, by their own history or since they are fewer; empty: nothing recorded tells.
    ``values``: by rank, the names in the deciding expression and what they were, where the frame still lives.
    ``harmless``: the last differences before it, newest first.
    """

    kind: PartingKind
    site: Site
    ways: tuple[Way, ...]
    text: str = ""
    callers: tuple[Site, ...] = ()
    odd: tuple[int, ...] = ()
    values: Mapping[int, Mapping[str, str]] = field(default_factory=dict[int, Mapping[str, str]])
    harmless: tuple[Harmless, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For ``--json``: file, line, kind, text, and the ways by side."""
        return {
            "file": self.site.file,
            "line": self.site.line,
            "function": self.site.function,
            "kind": self.kind,
            "text": self.text,
            "odd": list(self.odd),
            "ways": [
                {
                    "ranks": list(way.ranks),
                    "to": way.to.line if way.to != NO_SITE else None,
                    "says": way.says,
                    "calls": list(way.calls),
                    "before": {str(rank): list(counts) for rank, counts in way.before.items()},
                }
                for way in self.ways
            ],
            "values": {str(rank): dict(values) for rank, values in self.values.items()},
            "harmless": [{"file": one.site.file, "line": one.site.line, "text": one.text} for one in self.harmless],
        }
