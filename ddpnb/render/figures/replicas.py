"""Replicas that differ as a figure: a row for each tensor, a column for each rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ddpnb.render.figures import canvas
from ddpnb.render.palette import RANKS
from ddpnb.texts import one_line

_MOST = 24  # tensors
_RANKS = 64
_NAME = 60  # characters of a tensor's name
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
Row = tuple[str, Sequence[Sequence[int]], float | None, Mapping[int, float]]


def differences(rows: Sequence[Row], compared: int, ax: Axes | None = None) -> Axes:
    """Which ranks hold equal values of which tensor: those with the same letter do. Where a norm is known, it is there too.

    Args:
        rows: of each tensor that differs: its name, the groups of ranks with equal values (the largest first), the largest
            difference or None, and rank -> norm.
        compared: number of tensors.
        ax: where to draw; None: a new figure.
    """
    ranks = sorted({rank for _, sides, _, _ in rows for side in sides for rank in side})[:_RANKS]
    shown = rows[:_MOST]
    (axes,) = canvas.canvas(ax, min(11.0, 3.2 + 0.75 * max(4, len(ranks))), 1.0 + 0.3 * max(1, len(shown)))
    axes.spines[:].set_visible(False)
    canvas.plain(axes, "")
    axes.set_xlabel(_words(len(rows), compared), size=canvas.SIZE, loc="right")  # the names have room for its begin
    axes.set_xlim(-0.5, max(1, len(ranks)) - 0.5)
    axes.set_ylim(max(1, len(shown)) - 0.5, -0.5)
    axes.set_yticks(range(len(shown)), [_name(row) for row in shown])
    every = -(-len(ranks) // 16)
    axes.set_xticks(range(0, len(ranks), max(1, every)), [f"rank {rank}" for rank in ranks[:: max(1, every)]])
    axes.xaxis.set_ticks_position("top")
    axes.tick_params(length=0)
    roomy = len(ranks) <= 12
    for at, (_, sides, _, norms) in enumerate(shown):
        side_of = {rank: number for number, side in enumerate(sides) for rank in side}
        for column, rank in enumerate(ranks):
            if rank in side_of:
                _cell(axes, column, at, side_of[rank], norms.get(rank) if roomy else None)
    if not rows:
        canvas.empty(axes, "no difference" if compared else "no replicas to compare")
    return axes


def _cell(axes: Axes, column: int, at: int, side: int, norm: float | None) -> None:
    """The side of a rank, as a letter and a colour; the largest group has no colour."""
    if side:
        colour = RANKS[side % len(RANKS)]
        axes.add_patch(Rectangle((column - 0.46, at - 0.42), 0.92, 0.84, facecolor=colour, edgecolor="none"))
    words = _LETTERS[side] if side < len(_LETTERS) else f"{side}"
    words += f"  {norm:.4g}" if norm is not None else ""
    axes.text(
        column, at, words, ha="center", va="center", size=canvas.SIZE, color="white" if side else canvas.ink(axes),
        fontweight="bold" if side else "normal",
    )  # fmt: skip


def _name(row: Row) -> str:
    name, _, largest, _ = row
    shown = one_line(name, _NAME).replace("$", r"\$")
    return shown if largest is None else f"{shown}\nup to {largest:.3g} apart"


def _words(count: int, compared: int) -> str:
    more = f"; the first {_MOST} are shown" if count > _MOST else ""
    return f"{count} of {compared} tensors differ{more}: equal letters, equal values (number: norm)"
