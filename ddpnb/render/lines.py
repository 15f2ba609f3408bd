"""Figures of quantities over time: memory of the ranks, norms of their gradients."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

# Okabe and Ito's; beyond eight ranks they come again, and the words at the end of a line tell
_RANKS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8a8a00", "#555555")
_DASHES = ("-", "--", ":", "-.")
_NAMED = 16
_SIZE = 8  # of all letters
_MB = 1_000_000  # as the board counts


def memory(rows: Sequence[tuple[float, Mapping[int, int], Mapping[int, int]]]) -> Figure:
    """Memory of every rank's process, and of its GPU where there is one.

    Args:
        rows: seconds, rank -> bytes of the process, rank -> bytes in use on its GPU.
    """
    host = _by_rank([(at, told) for at, told, _ in rows])
    device = _by_rank([(at, told) for at, _, told in rows])
    panels = [("process memory, MB", host), *([("GPU memory, MB", device)] if device else [])]
    figure = _figure(len(panels))
    for axes, (title, lines) in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        _draw(axes, {rank: [(at, count / _MB) for at, count in line] for rank, line in lines.items()}, "s", title)
        axes.set_ylim(bottom=0)
    return figure


def gradients(norms: Mapping[int, Sequence[tuple[int, float]]]) -> Figure:
    """Norm of the gradients of every rank, step by step: see ``views.gradient_norms``."""
    figure = _figure(1)
    _draw(
        figure.add_subplot(),
        {rank: list(line) for rank, line in norms.items()},
        "optimizer step",
        "norm of the gradients",
    )
    return figure


def png(figure: Figure) -> bytes:
    return drawn(figure, "png")


def drawn(figure: Figure, kind: str) -> bytes:
    """The figure as a file: ``png`` or ``svg``."""
    with io.BytesIO() as file:
        figure.savefig(file, format=kind, dpi=110)
        return file.getvalue()


def _figure(panels: int) -> Figure:
    # Not by rc_context: it is drawn in a thread, and what somebody sets meanwhile would be undone at its end.
    return Figure(figsize=(8, 2.4 * panels), layout="constrained")


def _by_rank(rows: Sequence[tuple[float, Mapping[int, int]]]) -> dict[int, list[tuple[float, int]]]:
    found: dict[int, list[tuple[float, int]]] = {}
    for at, told in rows:
        for rank, count in told.items():
            found.setdefault(rank, []).append((at, count))
    return dict(sorted(found.items()))


def _draw(axes: Any, lines: Mapping[int, Sequence[tuple[float, float]]], across: str, up: str) -> None:
    lines = {rank: line for rank, line in lines.items() if line}
    for place, (rank, line) in enumerate(lines.items()):
        style = _DASHES[place // len(_RANKS) % len(_DASHES)]
        name = f"rank {rank}" if place < _NAMED else None
        marker = "o" if len(line) < 3 else None
        axes.plot(
            *zip(*line, strict=True), style, color=_RANKS[place % len(_RANKS)], lw=1.3, marker=marker, ms=3, label=name
        )
    axes.set_xlabel(across, size=_SIZE)
    axes.set_ylabel(up, size=_SIZE)
    axes.tick_params(labelsize=_SIZE)
    axes.grid(visible=True, lw=0.4, alpha=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if lines:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=_SIZE)
    else:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", size=_SIZE)
