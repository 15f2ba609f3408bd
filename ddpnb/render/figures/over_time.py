"""Norms of gradients over steps, and speed-up over the number of ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ddpnb.recording import phrases
from ddpnb.recording.split import by_value
from ddpnb.recording.timing.scaling import Scaled
from ddpnb.render.figures import canvas
from ddpnb.render.palette import FIGURES, RANKS

_DASHES = ("-", "--", ":", "-.")
_NAMED = 16
_HEIGHT = 2.4


def gradients(norms: Mapping[int, Sequence[tuple[int, float]]], ax: Axes | None = None) -> Axes:
    """Norm of the gradients of every rank, step by step: see ``views.gradient_norms``."""
    (axes,) = canvas.canvas(ax, 8, _HEIGHT)
    _draw(axes, norms, "optimizer step", "norm of the gradients", words="no gradients recorded")
    return axes


def scaling(rows: Sequence[Scaled], ax: Axes | None = None) -> Axes:
    """Speed-up over the number of ranks, beside a perfect one; the efficiency stands at each point.

    Args:
        rows: of ``timing.scaling.compare``.
        ax: where to draw; None: a new figure.
    """
    (axes,) = canvas.canvas(ax, 6, 3.4)
    known = [(row.size, row.speed_up, row.efficiency) for row in rows if row.efficiency is not None]
    failed = [row for row in rows if row.outcome != "ok"]
    sizes = [row.size for row in rows]
    canvas.plain(axes, "ranks", "speed-up")
    axes.grid(visible=True, lw=0.4, alpha=0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if not known:
        canvas.empty(axes, "no optimizer steps were recorded")
        return axes
    axes.plot(sizes, sizes, "--", color=canvas.ink(axes), lw=1, label="perfect")
    measured = [(size, up) for size, up, _ in known]
    axes.plot(*zip(*measured, strict=True), "o-", color=FIGURES["note"], lw=1.6, ms=5, label="measured")
    for size, up, share in known:
        axes.annotate(
            f"{share:.0%}", (size, up or 0.0), (6, -10), textcoords="offset points", size=canvas.SIZE,
            color=canvas.ink(axes),
        )  # fmt: skip
    if failed:
        places = [row.size for row in failed]
        named = ", ".join(sorted({row.outcome for row in failed}))
        axes.plot(places, [0.0] * len(places), "x", color=FIGURES["error"], ms=7, label=named, clip_on=False)
    axes.set_xlim(0, max(sizes) * 1.12)
    axes.set_ylim(bottom=0)
    canvas.legend(axes)
    return axes


def _draw(
    axes: Axes, lines: Mapping[int, Sequence[tuple[float, float]]], across: str, up: str, words: str = "no data"
) -> None:
    """One line for all ranks that have the same values; it is broken at a step of which only other ranks have a value."""
    known = {rank: dict(line) for rank, line in lines.items() if line}
    steps = sorted({step for values in known.values() for step in values})
    rows = {rank: tuple(_finite(values.get(step)) for step in steps) for rank, values in known.items()}
    for place, (values, ranks) in enumerate(by_value(rows.items()).items()):
        alone = _alone(values)
        style = (place + place // len(RANKS)) % len(_DASHES)
        named = "all ranks" if 1 < len(ranks) == len(known) else phrases.listed(ranks)
        axes.plot(
            steps, values, _DASHES[style], color=RANKS[place % len(RANKS)], lw=1.3, marker="o" if alone else "", ms=3,
            markevery=alone, zorder=2 + style / 10,  # dashes over lines: those below are seen between them
            label=named if place < _NAMED else None,
        )  # fmt: skip
    canvas.plain(axes, across, up)
    axes.grid(visible=True, lw=0.4, alpha=0.6)
    if known:
        canvas.legend(axes)
    else:
        canvas.empty(axes, words)


def _finite(value: float | None) -> float:
    """The value; ``math.nan`` itself, which equals itself in a tuple, where there is none that can be drawn."""
    return value if value is not None and math.isfinite(value) else math.nan


def _alone(values: Sequence[float]) -> list[int]:
    """Values without a neighbour: no line would show them."""
    padded = [math.nan, *values, math.nan]
    return [
        place
        for place, (before, value, after) in enumerate(zip(padded, values, padded[2:], strict=False))
        if math.isfinite(value) and not math.isfinite(before) and not math.isfinite(after)
    ]
