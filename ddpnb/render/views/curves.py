"""Quantities of a run over time as rows of a figure: a line per rank, or of many ranks the range."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from ddpnb.errors import UsageError
from ddpnb.recording import arguments
from ddpnb.recording.curves import Curves, Line, RankCurves
from ddpnb.recording.events.models import LossNotFinite
from ddpnb.recording.recording import Recording

LINES = 8  # ranks with a line each; of more, the range
_MOMENTS = 200  # of a range
_MB = 1_000_000  # as the board counts
_QUANTITIES = (
    ("loss", "loss", 1.0),
    ("process memory, MB", "memory", 1 / _MB),
    ("GPU memory, MB", "device_memory", 1 / _MB),
    ("cores in use", "cores", 1.0),
    ("GPU in use, %", "device_busy", 100.0),
)
_ALWAYS = 2  # of these are shown also without values: it is said that there are none


@dataclass(frozen=True, slots=True)
class CurveRow:
    """One quantity. ``lines``: rank -> points, or ``band``: (seconds, smallest, median, largest) over the ranks.

    ``unsound``: when a value was not finite, and on which rank.
    """

    title: str
    lines: Mapping[int, Line] = field(default_factory=dict[int, Line])
    band: tuple[tuple[float, float, float, float], ...] = ()
    ranks: int = 0  # in the band
    unsound: tuple[tuple[float, int], ...] = ()

    @property
    def known(self) -> bool:
        """Whether there is anything to draw."""
        return bool(self.lines or self.band or self.unsound)


def curves_of(recording: Recording, curves: Curves | None = None) -> Curves | None:
    """The curves of a recording (or others of the same run), with losses that are known only not to be finite.

    None if none were recorded.
    """
    curves = curves or recording.curves
    if curves is None:
        return None
    ranks = dict(curves.ranks)
    for rank, record in recording.ranks.items():
        known = ranks.get(rank, RankCurves())
        bad = tuple(((one.began_ns - curves.origin_ns) * 1e-9, math.nan) for one in record.events(LossNotFinite))
        if bad:
            ranks[rank] = replace(known, loss=tuple(sorted((*known.loss, *bad), key=lambda point: point[0])))
    return replace(curves, ranks=ranks)


def rows(curves: Curves | None) -> tuple[CurveRow, ...]:
    """A row for the loss and for the memory of processes, and one for each other quantity that was recorded."""
    ranks = curves.ranks if curves is not None else {}
    made = [_row(ranks, *quantity) for quantity in _QUANTITIES]
    return tuple(row for number, row in enumerate(made) if row.known or number < _ALWAYS)


def row(curves: Curves | None, name: str) -> CurveRow:
    """The row of one quantity, named as in ``RankCurves``.

    Raises:
        UsageError: there is no such quantity.
    """
    for title, known, scale in _QUANTITIES:
        if known == name:
            return _row(curves.ranks if curves is not None else {}, title, known, scale)
    raise UsageError(
        f"there is no curve {arguments.short(name)}.",
        f"Choose one of: {', '.join(known for _, known, _ in _QUANTITIES)}.",
    )


def _row(ranks: Mapping[int, RankCurves], title: str, name: str, scale: float) -> CurveRow:
    lines: dict[int, Line] = {}
    unsound: list[tuple[float, int]] = []
    for rank, one in sorted(ranks.items()):
        line: Line = getattr(one, name)
        finite = tuple((at, value * scale) for at, value in line if math.isfinite(value))
        unsound += [(at, rank) for at, value in line if not math.isfinite(value)]
        if finite:
            lines[rank] = finite
    if len(lines) > LINES:
        return CurveRow(title, {}, _band(lines), len(lines), tuple(sorted(unsound)))
    return CurveRow(title, lines, unsound=tuple(sorted(unsound)))


def _band(lines: Mapping[int, Line]) -> tuple[tuple[float, float, float, float], ...]:
    """The range over the ranks at some moments: each rank counts from its first value to its last, with the one before."""
    times = {rank: [at for at, _ in line] for rank, line in lines.items()}
    moments = sorted({at for known in times.values() for at in known})
    moments = moments[:: max(1, len(moments) // _MOMENTS)]
    found: list[tuple[float, float, float, float]] = []
    for at in moments:
        values = [
            lines[rank][place][1]
            for rank, known in times.items()
            if known[0] <= at <= known[-1] and (place := bisect_right(known, at) - 1) >= 0
        ]
        if values:
            found.append((at, min(values), median(values), max(values)))
    return tuple(found)


def sentence(drawn: tuple[CurveRow, ...]) -> str:
    """What is drawn, in words."""
    parts: list[str] = []
    for row in drawn:
        last = {rank: line[-1][1] for rank, line in row.lines.items()}
        if last:
            values = ", ".join(f"{value:.4g} on {rank}" for rank, value in last.items())
            parts.append(f"{row.title}, last: {values}")
        elif row.band:
            _, low, mid, high = row.band[-1]
            parts.append(f"{row.title}, last: {low:.4g} to {high:.4g} on {row.ranks} ranks, median {mid:.4g}")
        else:
            parts.append(f"{row.title}: none recorded")
        if row.unsound:
            at, rank = row.unsound[0]
            parts[-1] += f"; not finite first on rank {rank}, at {at:.2f} s"
    return "\n".join(parts)
