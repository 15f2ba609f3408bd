"""The result of every measurement: a row with its samples, those of the peer in the same run, and the goal."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

#: what a goal limits -> how it is written after the limit
OF = {"ratio": " x peer", "added": " more", "median": "", "p95": " (p95)", "most": " at most"}


@dataclass(frozen=True)
class Goal:
    """A limit of the ratio to the peer, of the difference from it, or of the samples themselves.

    Args:
        limit: in the unit of the row; for a ratio without a unit.
        of: ``ratio``, ``added`` (median less that of the peer), ``median``, ``p95`` or ``most``.
        least: the value must be at least the limit.
    """

    limit: float
    of: str = "ratio"
    least: bool = False

    def met_by(self, value: float) -> bool:
        return value >= self.limit if self.least else value <= self.limit


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        part: the name that chooses it on the command line.
        what: what was measured.
        ours: samples of ddpnb, in ``unit``; empty if it was not measured.
        unit: ``s``, ``MB``, ``probes``, ``dumps/s`` ...
        peer: what a user would otherwise take; empty if there is nothing like it.
        theirs: samples of the peer; as many as ``ours``, pair by pair, where they were measured in turn.
        goal: None: a row that only informs.
        note: what else was seen, in a few words.
        failure: why there is no result.
        detail: more for the JSON file.

    Example:
        >>> Row("launch", "4 ranks", (2.4, 2.5), peer="torchrun", theirs=(3.0, 3.1), goal=Goal(0.95)).ratio
        0.80...
    """

    part: str
    what: str
    ours: tuple[float, ...] = ()
    unit: str = "s"
    peer: str = ""
    theirs: tuple[float, ...] = ()
    goal: Goal | None = None
    note: str = ""
    failure: str = ""
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float | None:
        return statistics.median(self.ours) if self.ours else None

    @property
    def of_peer(self) -> float | None:
        return statistics.median(self.theirs) if self.theirs else None

    @property
    def ratio(self) -> float | None:
        """To the peer: the median over the pairs, or of the medians where samples are no pairs."""
        if not self.ours or not self.theirs or not all(self.theirs):
            return None
        if len(self.ours) == len(self.theirs):
            return statistics.median(one / other for one, other in zip(self.ours, self.theirs, strict=True))
        return statistics.median(self.ours) / statistics.median(self.theirs)

    @property
    def value(self) -> float | None:
        """What the goal limits."""
        if self.goal is None or not self.ours:
            return None
        if self.goal.of == "ratio":
            return self.ratio
        if self.goal.of == "added":
            return None if self.of_peer is None else statistics.median(self.ours) - self.of_peer
        if self.goal.of == "p95":
            return percentile(self.ours, 0.95)
        return max(self.ours) if self.goal.of == "most" else statistics.median(self.ours)

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None: no goal, or nothing was measured."""
        return None if self.goal is None or self.value is None else self.goal.met_by(self.value)

    @property
    def finite(self) -> bool:
        return all(math.isfinite(one) for one in (*self.ours, *self.theirs))

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "median": self.median,
            "of_peer": self.of_peer,
            "ratio": self.ratio,
            "value": self.value,
            "met": self.met,
        }


def percentile(values: tuple[float, ...] | list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1) + 0.5)]


def quantity(value: float, unit: str) -> str:
    """A value as people write it: seconds become milliseconds or microseconds where they are short."""
    if unit == "s" and value:
        unit, factor = next(
            (name, by) for name, by, least in (("s", 1, 1.0), ("ms", 1e3, 1e-3), ("us", 1e6, 0)) if abs(value) >= least
        )
        value *= factor
    digits = 0 if abs(value) >= 100 or float(value).is_integer() else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {unit}".strip()


def spread(values: tuple[float, ...], unit: str) -> str:
    """The median, and the lowest and highest of few samples or the quartiles of many."""
    if not values:
        return "-"
    text = quantity(statistics.median(values), unit)
    if len(values) == 1 or min(values) == max(values):
        return text
    low, high = (min(values), max(values)) if len(values) < 8 else statistics.quantiles(values, n=4)[::2]
    return f"{text} ({quantity(low, unit)} to {quantity(high, unit)})"


def wanted(goal: Goal | None, unit: str) -> str:
    if goal is None:
        return ""
    limit = f"{goal.limit:g}" if goal.of == "ratio" else quantity(goal.limit, unit)
    return f"{'>=' if goal.least else '<='} {limit}{OF[goal.of]}"


def verdict(row: Row) -> str:
    """Met, or not and by how much."""
    if row.failure:
        return "FAILED"
    if row.met is None or row.value is None or row.goal is None:
        return ""
    if row.met:
        return "met"
    by = f"x{row.value:.2f}" if row.goal.of == "ratio" else quantity(row.value, row.unit)
    return f"not met: {by}"
