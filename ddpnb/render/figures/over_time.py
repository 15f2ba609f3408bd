"""Norms of gradients over steps, and speed-up over the number of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ddpnb.recording.timing.scaling import Scaled
from ddpnb.render.figures import canvas
from ddpnb.render.palette import FIGURES, RANKS

_DASHES = ("-", "--", ":", "-.")
_NAMED = 16
_HEIGHT = 2.4


def gradients(norms: Mapping[int, Sequence[tuple[int, float]]], ax: Axes | None = None) -> Axes:
    """Norm of the gradients of every rank, step by step: see ``views.gradient_norms``."""
    (axes,) = canvas.canvas(ax, 8, _HEIGHT)
    lines = {rank: list(line) for rank, line in norms.items()}
    _draw(axes, lines, "optimizer step", "norm of the gradients", words="no gradients recorded")
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
    lines = {rank: line for rank, line in lines.items() if line}
    for place, (rank, line) in enumerate(lines.items()):
        style = _DASHES[place // len(RANKS) % len(_DASHES)]
        name: dict[str, Any] = {"label": f"rank {rank}"} if place < _NAMED else {}
        marker: Literal["o", ""] = "o" if len(line) < 3 else ""
        points: Any = zip(*line, strict=True)
        axes.plot(*points, style, color=RANKS[place % len(RANKS)], lw=1.3, marker=marker, ms=3, **name)
    canvas.plain(axes, across, up)
    axes.grid(visible=True, lw=0.4, alpha=0.6)
    if lines:
        canvas.legend(axes)
    else:
        canvas.empty(axes, words)
