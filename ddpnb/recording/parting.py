"""Where the paths of ranks part: the decision, the way of each side, and what had been decided differently before they met again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.codec import WHOLE, changed, object_in, written

_AROUND = 8  # lines of the source that are kept before and after
_LONGEST = 300  # characters of a line

#: ``operation``: equal decisions, but different collectives (decided inside a library).
PartingKind = Literal["loop", "branch", "exception", "call", "end", "operation"]


LEFT_LOOP = "left the loop"


@dataclass(frozen=True, slots=True)
class Way:
    """The way of one side. A side without ranks: how the rank of the other one went in its earlier iterations.

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
    def leaves_loop(self) -> bool:
        """Whether it left the loop whose decision it is."""
        return self.says == LEFT_LOOP

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
    ``source``: numbers and texts of the lines around, and of those to which the ways lead: see ``quoted``.
    """

    kind: PartingKind
    site: Site
    ways: tuple[Way, ...]
    text: str = ""
    callers: tuple[Site, ...] = ()
    odd: tuple[int, ...] = ()
    values: Mapping[int, Mapping[str, str]] = field(default_factory=dict[int, Mapping[str, str]])
    harmless: tuple[Harmless, ...] = ()
    source: tuple[tuple[int, str], ...] = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks that part here."""
        return tuple(sorted({rank for way in self.ways for rank in way.ranks}))

    def way_of(self, ranks: Iterable[int]) -> Way | None:
        """The way of all those of these ranks that part here; None: of none of them, or they took several."""
        wanted = set(ranks)
        found = [way for way in self.ways if wanted.intersection(way.ranks)]
        return found[0] if len(found) == 1 else None

    def left_loop(self, ranks: Iterable[int]) -> bool:
        """Whether these ranks left a loop in which the others stayed."""
        own = self.way_of(ranks)
        return own is not None and own.leaves_loop and not any(way.leaves_loop for way in self.ways if way is not own)

    def jumped(self, ranks: Iterable[int]) -> bool:
        """Whether these ranks left the usual way, for the first time, by an exception, a ``return``, a ``break`` or a ``continue``."""
        own = self.way_of(ranks)
        return own is not None and bool(own.says) and own.new and self.kind in ("branch", "exception")

    def here(self, site: Site) -> bool:
        """Whether a line is in the function in which the ranks part."""
        return (site.file, site.function) == (self.site.file, self.site.function)

    def quoted(self, sources: Mapping[str, str], edited: Iterable[str] = ()) -> Parting:
        """With the lines around it, so that it can be shown without the Recording.

        Args:
            sources: the text of each file, as ``Recording.sources``.
            edited: files of which that is not what the ranks ran.
        """
        text = sources.get(self.site.file, "")
        if not text or self.site.file in edited:
            return self
        wanted = set(range(self.site.line - _AROUND, self.site.line + _AROUND + 1))
        wanted |= {way.to.line for way in self.ways if self.here(way.to)}
        return replace(self, source=quoted_lines(text.split("\n"), wanted))

    def mapped(self, change: Callable[[str], str]) -> Parting:
        """With other texts: paths that are shortened, secrets that are masked."""
        return replace(changed(self, change), kind=self.kind)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``: file, line, kind, text, and the ways by side; places as in ``where`` of a finding, None for no line."""
        return {
            **written(self.site),
            "kind": self.kind,
            "text": self.text,
            "callers": written(self.callers),
            "odd": written(self.odd),
            "ways": written(self.ways),
            "values": written(self.values),
            "harmless": [
                {
                    **written(one.site),
                    "text": one.text,
                    "ways": [{"ranks": list(ranks), "to": written(to)} for ranks, to in one.ways],
                }
                for one in self.harmless
            ],
            "source": written(self.source),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Parting:
        """What ``to_json()`` has described. It comes from anywhere.

        Raises:
            KeyError, TypeError, ValueError: it is not a parting.
        """
        harmless = [
            {"site": one, "text": one["text"], "ways": [(way["ranks"], way["to"]) for way in one["ways"]]}
            for one in map(object_in, data["harmless"])
        ]
        return WHOLE.read(cls, {**data, "site": data, "harmless": harmless})


def quoted_lines(lines: Sequence[str], wanted: Iterable[int]) -> tuple[tuple[int, str], ...]:
    """Those of these lines that a file has, each with its number, cut where they are very long."""
    return tuple((number, lines[number - 1][:_LONGEST]) for number in sorted(wanted) if 0 < number <= len(lines))
