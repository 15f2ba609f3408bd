"""What the doctor finds: checks of a machine, and how long collectives take."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

#: in this order they are shown
SECTIONS = ("versions", "environment variables", "machine", "network", "GPUs", "timings")


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    ``told``: the result in one line; ``state`` is ``unknown`` where the system does not say. ``code``: of the finding that it
    can cause; ``section``: one of ``SECTIONS``; ``todo``: what to do about it; ``details``: what was read, by name, as JSON
    can hold it.
    """

    name: str
    state: Literal["ok", "warning", "unknown"]
    told: str
    code: str = ""
    section: str = "machine"
    todo: str = ""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])


def judged(
    name: str,
    told: str,
    todo: str = "",
    code: str = "",
    section: str = "machine",
    details: Mapping[str, Any] | None = None,
) -> Check:
    """A check that is a warning where something is to do, with the code of the finding that it can cause; else it is ok."""
    return Check(name, "warning" if todo else "ok", told, code if todo else "", section, todo, details or {})


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """How long a collective took, again and again: ``seconds`` of each call, by rank."""

    op: str
    size: int  # bytes on each rank
    seconds: Mapping[int, Sequence[float]]

    @property
    def medians(self) -> dict[int, float]:
        """The median of each rank."""
        return {rank: statistics.median(taken) for rank, taken in self.seconds.items() if taken}

    @property
    def latency(self) -> float:
        """The median of the slowest rank."""
        return max(self.medians.values(), default=0.0)

    @property
    def algorithm_bandwidth(self) -> float:
        """Bytes per second: the size through the latency (``algbw`` of nccl-tests)."""
        return self.size / self.latency if self.latency else 0.0

    @property
    def bus_bandwidth(self) -> float:
        """Bytes per second of each link: 2 (n - 1) / n of the former in an all-reduce (``busbw`` of nccl-tests)."""
        n = len(self.seconds)
        return self.algorithm_bandwidth * 2 * (n - 1) / n if n else 0.0

    def to_json(self) -> dict[str, Any]:
        """Seconds, and bytes per second."""
        return {
            "op": self.op,
            "bytes": self.size,
            "calls": max(map(len, self.seconds.values()), default=0),
            "median_s": round(self.latency, 9),
            "algorithm_bandwidth": round(self.algorithm_bandwidth),
            "bus_bandwidth": round(self.bus_bandwidth),
            "ranks": {
                str(rank): {"median_s": round(value, 9), "longest_s": round(max(self.seconds[rank]), 9)}
                for rank, value in self.medians.items()
            },
        }
