"""Quantities of a run over time, below each other, in the seconds of the time line.

They have one time axis; but a loss of so short a time that it would be a dash in it has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ddpnb.render.figures import canvas
from ddpnb.render.palette import FIGURES, RANKS
from ddpnb.render.views.curves import CurveRow

_HEIGHT = 1.7
_STYLES: tuple[Literal["-", "--"], ...] = ("-", "--")  # of neighbours: never colour alone
_SHORT = 0.25  # of the time of all quantities: a loss that took less has its own axis
_TIME = "seconds of the run"
_NONE = {"loss": "no loss recorded: only one that is passed to backward() is seen"}


def curves(rows: Sequence[CurveRow], ax: Axes | None = None) -> Axes:
    """Draw rows of ``views.curves.rows``.

    Args:
        rows: to draw.
        ax: where to draw the first row alone; None: a new figure with all of them.

    Returns:
        The Axes of the first row; ``ax.figure.axes`` has the others.
    """
    drawn = rows[:1] if ax is not None else rows
    made = canvas.canvas(ax, 8, _HEIGHT * len(drawn) + 0.4, len(drawn))
    for axes, row in zip(made, drawn, strict=True):
        _draw(axes, row, last=axes is made[-1])
    known = [(axes, row) for axes, row in zip(made, drawn, strict=True) if row.known]
    ends = [axes.get_xlim() for axes, _ in known]
    begin, end = (min(left for left, _ in ends), max(right for _, right in ends)) if ends else (0.0, 1.0)
    for axes, row in known:
        left, right = axes.get_xlim()
        if row.title == "loss" and right - left < _SHORT * (end - begin):
            axes.set_xlabel(_TIME)
        else:
            axes.set_xlim(begin, end)
    return made[0]


def _draw(axes: Axes, row: CurveRow, *, last: bool) -> None:
    for place, (rank, line) in enumerate(row.lines.items()):
        marker: Literal["o", ""] = "o" if len(line) < 3 else ""
        points: Any = zip(*line, strict=True)
        style, colour = _STYLES[place % len(_STYLES)], RANKS[place % len(RANKS)]
        axes.plot(*points, style, color=colour, lw=1.3, marker=marker, ms=3, label=f"rank {rank}")
    if row.band:
        at, low, mid, high = (list(values) for values in zip(*row.band, strict=True))
        axes.fill_between(at, low, high, color=FIGURES["note"], alpha=0.3, lw=0, label=f"range of {row.ranks} ranks")
        axes.plot(at, mid, color=FIGURES["note"], lw=1.3, label="median")
    canvas.plain(axes, _TIME if last else "", row.title)
    axes.grid(visible=True, lw=0.4, alpha=0.6)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    if row.lines or row.band:
        bottom, top = axes.get_ylim()
        if row.title != "loss":
            axes.set_ylim(0, top * 1.05)
        else:
            axes.set_ylim(bottom, top)  # the marks below must not move it
    if row.unsound:
        ranks = sorted({rank for _, rank in row.unsound})
        named = ", ".join(map(str, ranks[:6])) + (", …" if len(ranks) > 6 else "")
        axes.plot(
            [at for at, _ in row.unsound], [0.06] * len(row.unsound), "x", color=FIGURES["error"], ms=6, mew=1.6,
            transform=axes.get_xaxis_transform(), clip_on=False, label=f"not finite: {named}",
        )  # fmt: skip
    if row.known:
        canvas.legend(axes)
    else:
        canvas.empty(axes, _NONE.get(row.title, "none recorded"))
