"""What a search knows: the probes that were answered, where it stands, and what it has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ddpnb.bisection.algorithms import Answer
from ddpnb.bisection.space import Probe, Value


@dataclass(frozen=True, slots=True)
class Trial:
    """One probe that was answered.

    ``answer``: ``bad`` is the failure that is searched for, ``other`` another failure, ``skip`` cannot be judged.
    ``code``: of the finding. ``seconds``: that it took. ``reason``: for people. ``asked``: the search asked for it; else
    it ran beside others, and was not needed.
    """

    probe: Probe
    answer: Answer
    code: str | None = None
    seconds: float = 0.0
    reason: str = ""
    asked: bool = True

    def to_json(self) -> dict[str, Any]:
        on, at = list(self.probe.on), self.probe.at
        common = {"answer": self.answer, "code": self.code, "seconds": round(self.seconds, 3)}
        return {"on": on, "at": at, **common, "reason": self.reason} | ({} if self.asked else {"asked": False})


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search has found.

    ``outcome``: ``found``; ``nothing fails``: the start does not; ``always fails``: the harmless configuration fails too;
    ``undecided``: probes that matter could not be judged. ``causes``: smallest failing sets, each on its own.
    ``first_bad``, ``last_good``: of values in order. ``candidates``: what is left where it is undecided. ``seldom``: it is
    undecided because the start has failed, but hardly ever does.
    """

    outcome: Literal["found", "nothing fails", "always fails", "undecided"]
    causes: tuple[tuple[str, ...], ...] = ()
    first_bad: Value | None = None
    last_good: Value | None = None
    candidates: tuple[Value, ...] = ()
    seldom: bool = False

    @property
    def minimal(self) -> tuple[str, ...]:
        """The first of the smallest failing sets."""
        return self.causes[0] if self.causes else ()


@dataclass(frozen=True, slots=True)
class Step:
    """Where a search stands: its result, or the next probe with what is left."""

    result: SearchResult | None = None
    probe: Probe | None = None
    expected: int = 0  # probes from here on
    candidates: tuple[Value, ...] = ()
    confidence: float = 1.0  # that no good answer which was used hides a failure
