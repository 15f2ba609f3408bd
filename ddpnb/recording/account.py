"""The time account of a run: where each rank's time went, and which ranks the others waited for.

Each field says what is measured, and how. All times of one machine come from its monotonic
clock, which is the same on all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ddpnb.recording.calls import Site


@dataclass(frozen=True, slots=True)
class Parts:
    """Time in its parts, in seconds.

    ``waiting``: the main thread was in a collective (or a receive) that other ranks had not called yet.
    ``communication``: it was there after all had called it, or this is unknown.
    ``data``: it was inside ``next()`` of a data loader, whether that waits or computes.
    ``held``: it was held, before a call or a line (``world.hold()``).
    ``compute``: all else after the start and before the last collective, backward pass or step:
    Python and kernels, overlapped communication, and waiting for a core.
    """

    compute: float = 0.0
    waiting: float = 0.0
    communication: float = 0.0
    data: float = 0.0
    held: float = 0.0

    @property
    def total(self) -> float:
        return self.compute + self.waiting + self.communication + self.data + self.held

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of its parts; that it was held only where it was."""
        return PARTS if self.held else PARTS[:-1]

    def share(self, part: str) -> float:
        """The share of one part, from 0 to 1."""
        return getattr(self, part) / self.total if self.total > 0 else 0.0

    def to_json(self) -> dict[str, float]:
        return {name: round(getattr(self, name), 6) for name in PARTS}


PARTS = ("compute", "waiting", "communication", "data", "held")


@dataclass(frozen=True, slots=True)
class RankAccount:
    """One rank's time.

    ``other_s`` is no part of the training: the start, up to the end of the first backward pass or
    step (without steps, up to the first collective), and the time after the last of them.
    """

    rank: int
    wall_s: float = 0.0
    parts: Parts = field(default_factory=Parts)
    other_s: float = 0.0
    steps: int = 0
    step: Parts | None = None  # medians of an optimizer step's parts, the first step left out
    steps_per_s: float | None = None  # from the end of the first step to the end of the last
    utilisation: float | None = None  # of a CPU: process CPU time / (wall time x threads); unknown for a GPU
    device: str = "cpu"
    threads: int = 0
    waited_for: tuple[tuple[int, float], ...] = ()  # (rank, seconds), longest first

    def to_json(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "wall_s": round(self.wall_s, 4),
            **{f"{name}_s": value for name, value in self.parts.to_json().items()},
            "other_s": round(self.other_s, 4),
            "steps": self.steps,
            "steps_per_s": self.steps_per_s,
            "step": self.step.to_json() if self.step is not None else None,
            "utilisation": self.utilisation,
            "device": self.device,
            "waited_for": [{"rank": rank, "seconds": round(seconds, 4)} for rank, seconds in self.waited_for],
        }


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank for which others waited: seconds summed over those that waited, and the lines at which they did."""

    rank: int
    waited_s: float
    share: float  # of all waiting
    times: int = 0  # collectives that it called last
    sites: tuple[tuple[Site, float], ...] = ()  # longest first
    because: str = ""  # what takes it longer than the others, where that is known

    def to_json(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "waited_s": round(self.waited_s, 4),
            "share": round(self.share, 4),
            "times": self.times,
            "sites": [{"file": s.file, "line": s.line, "seconds": round(seconds, 4)} for s, seconds in self.sites],
            "because": self.because,
        }


Pattern = Literal["", "one", "some", "turns"]


@dataclass(frozen=True, slots=True)
class Account:
    """The time account.

    ``pattern``: ``one`` when the ranks waited almost always for the same rank, ``some`` for the same few, ``turns``
    when for each other by turns. ``covered``: the share of the calls that were recorded completely.
    ``host_only``: the collectives ran on GPUs; then ``stragglers`` are ranks whose hosts came last,
    and how long a GPU waited is not known.
    """

    ranks: tuple[RankAccount, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    pattern: Pattern = ""
    covered: float = 1.0
    host_only: bool = False
    notes: tuple[str, ...] = ()

    @property
    def parts(self) -> Parts:
        """All ranks together."""
        return Parts(*(sum(getattr(rank.parts, name) for rank in self.ranks) for name in PARTS))

    @property
    def steps_per_s(self) -> float | None:
        """Optimizer steps per second: of the slowest rank, as that is the pace of all."""
        known = [rank.steps_per_s for rank in self.ranks if rank.steps_per_s is not None]
        return min(known) if known else None

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "covered": round(self.covered, 4),
            "host_only": self.host_only,
            "pattern": self.pattern,
            "parts": self.parts.to_json(),
            "ranks": [rank.to_json() for rank in self.ranks],
            "stragglers": [straggler.to_json() for straggler in self.stragglers],
            "notes": list(self.notes),
        }
