"""The time account as a figure: a bar for each rank."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ddpnb.recording.account import PARTS, Account, RankAccount
from ddpnb.recording.timing.quantities import percent
from ddpnb.render.figures import canvas
from ddpnb.render.palette import FIGURES

_MOST = 64  # ranks
_WRITTEN = 0.06  # share of the longest bar from which on a part has room for its number
_STYLES: dict[str, dict[str, Any]] = {
    "compute": {"facecolor": FIGURES["ok"]},
    "waiting": {"facecolor": "none", "edgecolor": FIGURES["error"], "hatch": "////"},
    "communication": {"facecolor": FIGURES["note"]},
    "data": {"facecolor": FIGURES["warning"]},
    "held": {"facecolor": "none", "edgecolor": FIGURES["note"], "hatch": "xxx"},
}


def account(of: Account, ax: Axes | None = None) -> Axes:
    """Seconds of every rank in their parts; beyond 64 ranks, of those that wait longest and shortest.

    Args:
        of: the account.
        ax: where to draw; None: a new figure.
    """
    shown = [rank for rank in of.ranks if rank.parts.total > 0]
    left = len(shown) - _MOST
    if left > 0:
        order = sorted(shown, key=lambda rank: rank.parts.waiting)
        shown = sorted([*order[: _MOST // 2], *order[-_MOST // 2 :]], key=lambda rank: rank.rank)
    (axes,) = canvas.canvas(ax, 8, 0.9 + 0.28 * max(1, len(shown)) if len(shown) <= 24 else 7.0)
    canvas.plain(axes, f"seconds{f'; {left} ranks between these are not shown' if left > 0 else ''}")
    axes.set_yticks(range(len(shown)), [f"rank {rank.rank}" for rank in shown])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(max(1, len(shown)) - 0.4, -0.6)
    if not shown:
        canvas.empty(axes, "no training recorded")
        return axes
    longest = max(rank.parts.total for rank in shown)
    for at, rank in enumerate(shown):
        _bar(axes, at, rank, longest if len(shown) <= 24 else 0.0)
    axes.set_xlim(0, longest * 1.01)
    used = [part for part in PARTS if any(getattr(rank.parts, part) > 0 for rank in shown)]
    canvas.legend(axes, [Patch(label=part, **_STYLES[part]) for part in used], columns=5, above=True)
    return axes


def _bar(axes: Axes, at: int, rank: RankAccount, longest: float) -> None:
    """One bar; with the shares in it where ``longest`` says how much room there is."""
    left = 0.0
    for part in PARTS:
        seconds = getattr(rank.parts, part)
        if seconds <= 0:
            continue
        axes.barh(at, seconds, 0.6, left=left, **_STYLES[part])
        if longest and seconds >= _WRITTEN * longest:
            canvas.plate(axes, left + seconds / 2, at, percent(rank.parts.share(part)), ha="center")
        left += seconds
