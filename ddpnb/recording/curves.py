"""Quantities of a run over time, rank by rank: loss, memory, use of cores and GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Line = tuple[tuple[float, float], ...]  # seconds since the origin, value


@dataclass(frozen=True, slots=True)
class RankCurves:
    """What was recorded of one rank, as ``(seconds, value)`` pairs.

    ``loss``: as it was passed to ``backward()``, in the steps that were sampled; it may be NaN or infinite. One on a GPU is
    copied without waiting for the device, and is known when the copy is complete: that of the last step may be missing. ``memory``: bytes of the process; ``cores``: that it and its children kept
    busy; ``device_memory``: bytes in use on its GPU, by any process; ``device_busy``: share of the time (0 to 1) in which its
    GPU ran a kernel.
    """

    loss: Line = ()
    memory: Line = ()
    cores: Line = ()
    device_memory: Line = ()
    device_busy: Line = ()


@dataclass(frozen=True, slots=True)
class Curves:
    """Quantities of a run over time, up to the moment when its outcome was known.

    Seconds are counted from ``origin_ns`` of the monotonic clock: when the run began, or its first collective if that was
    before somebody looked, as in the time line. Of a long run, every second, fourth, ... value is kept.
    """

    origin_ns: int = 0
    ranks: Mapping[int, RankCurves] = field(default_factory=dict[int, RankCurves])
