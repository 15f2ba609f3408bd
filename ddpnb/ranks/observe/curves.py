"""Keeps quantities of a run over time, in bounded memory: when a line is full, every second value is dropped."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping

from ddpnb.recording.curves import Curves, Line, RankCurves

_EVERY_S = 0.5  # between two looks at memory and use
_LOOKS, _LOSSES = 512, 1024  # that are kept of a rank
_QUANTITIES = ("memory", "cores", "device_memory", "device_busy")


class CurveHistory:
    """The curves of one run. Any thread may use it.

    Args:
        began_ns: when the run, or the monitoring of a job, began, on the monotonic clock: seconds count from there, or from the
            first call if that was earlier, as in the time line.
    """

    def __init__(self, began_ns: int) -> None:
        self._began_ns = began_ns
        self._first_call_ns = 0
        self._every, self._looked = _EVERY_S, -math.inf
        self._looks: list[tuple[int, dict[int, Mapping[str, float | None]]]] = []
        # By model and rank: (time, loss)
        self._losses: dict[int, dict[int, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
        self._seen: dict[tuple[int, int], int] = defaultdict(int)  # losses, with those that were dropped
        self._lock = threading.Lock()

    @property
    def due(self) -> bool:
        """Whether memory and use are to be added now."""
        return time.monotonic() - self._looked >= self._every

    @property
    def begun(self) -> bool:
        """Whether the first call is known."""
        return self._first_call_ns > 0

    def first_call(self, at_ns: int) -> None:
        """The first collective of the run began."""
        self._first_call_ns = at_ns

    def look(self, at_ns: int, used: Mapping[int, Mapping[str, float | None]]) -> None:
        """Add memory and use of each rank: ``memory``, ``cores``, ``device_memory``, ``device_busy``, as far as known."""
        with self._lock:
            self._looked = time.monotonic()
            self._looks.append((at_ns, dict(used)))
            if len(self._looks) > _LOOKS:
                self._looks = self._looks[::2]
                self._every *= 2

    def loss(self, model: int, rank: int, at_ns: int, value: float) -> None:
        """Add a loss. The ones that are not finite stay longest: they show where it began."""
        with self._lock:
            line = self._losses[model][rank]
            self._seen[model, rank] += 1
            line.append((at_ns, value))
            if len(line) > _LOSSES:
                bad = [one for one in line if not math.isfinite(one[1])][: _LOSSES // 8]
                line[:] = sorted({*line[::2], *bad}, key=lambda one: one[0])

    def curves(self) -> Curves:
        """All of it; of several models, the losses of the one with most."""
        with self._lock:
            origin = min(self._began_ns, self._first_call_ns or self._began_ns)
            counts: dict[int, int] = defaultdict(int)
            for (model, _), count in self._seen.items():
                counts[model] += count
            losses = self._losses[max(counts, key=lambda one: (counts[one], -one))] if counts else {}
            ranks = sorted({*losses, *(rank for _, used in self._looks for rank in used)})
            found = {
                rank: RankCurves(
                    _line(losses.get(rank, ()), origin),
                    *(_line(self._values(rank, name), origin) for name in _QUANTITIES),
                )
                for rank in ranks
            }
        return Curves(origin, found)

    def _values(self, rank: int, name: str) -> list[tuple[int, float]]:
        values = ((at, used[rank].get(name)) for at, used in self._looks if rank in used)
        return [(at, value) for at, value in values if value]


def _line(values: Iterable[tuple[int, float]], origin: int) -> Line:
    return tuple(((at - origin) * 1e-9, float(value)) for at, value in values)
