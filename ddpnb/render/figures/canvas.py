"""What figures are drawn on, how they become files, and what all of them look like.

A new figure has no background and ink of a middle tone: it reads well on light and dark pages and on paper. Axes that
are given keep the background and the ink of their owner.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddpnb.errors import UsageError
from ddpnb.recording.arguments import short
from ddpnb.render.palette import INK

SIZE = 8  # of letters, in points
_DPI = 110
_KINDS = ("png", "svg", "pdf")
_PLATE = {"boxstyle": "round,pad=0.25", "edgecolor": "none"}
_DARK = "#454d56"  # of a plate below white letters


def canvas(ax: Axes | None, width: float, height: float, rows: int = 1, *, shown: bool = True) -> list[Axes]:
    """The Axes that are given, or new ones, one below the other.

    The figure of new ones belongs to pyplot where pyplot shows figures: in a notebook, so that the figure appears below its
    cell once, and in programs that have imported pyplot. Everywhere else it belongs to nobody: save it with
    ``ax.figure.savefig()``.

    Args:
        ax: of the user; None: new ones.
        width, height: of the new figure, in inches.
        rows: number of new ones.
        shown: False: the figure becomes a file, pyplot does not get it.

    Raises:
        UsageError: ``ax`` is something else.
    """
    if ax is not None:
        if not isinstance(ax, Axes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"ax takes the Axes of a matplotlib figure, not {short(ax)}.")
        return [ax]
    # Not a transparent colour: Jupyter would put a light plate below it on dark pages.
    options: dict[str, Any] = {"figsize": (width, height), "layout": "constrained", "frameon": False}
    pyplot = _pyplot() if shown else None
    figure = pyplot.figure(**options) if pyplot is not None else Figure(**options)
    made = list(figure.subplots(rows, squeeze=False)[:, 0])
    for axes in made:
        axes.patch.set_visible(False)
        axes.tick_params(colors=INK, labelcolor=INK)
        axes.xaxis.label.set_color(INK)
        axes.yaxis.label.set_color(INK)
        axes.title.set_color(INK)
        axes.spines[:].set_color(INK)
    return made


def _pyplot() -> Any:
    """The user's pyplot, if it shows figures. It must not be used in other threads than the main one."""
    if threading.current_thread() is not threading.main_thread():
        return None
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    if "matplotlib.pyplot" not in sys.modules and getattr(shell, "kernel", None) is None:
        return None
    from matplotlib import pyplot as plt

    return plt


def ink(axes: Axes) -> Any:
    """The colour of words."""
    return axes.xaxis.label.get_color()


def plain(axes: Axes, across: str, up: str = "") -> None:
    """Small letters, no frame, and what the axes mean."""
    axes.set_xlabel(across, size=SIZE)
    axes.set_ylabel(up, size=SIZE)
    axes.tick_params(labelsize=SIZE)
    axes.spines[["top", "right"]].set_visible(False)


def legend(axes: Axes, handles: Sequence[Any] | None = None, *, columns: int = 1, above: bool = False) -> None:
    """Beside the drawing, or above it."""
    place: dict[str, Any] = (
        {"loc": "lower left", "bbox_to_anchor": (0, 1)} if above else {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    )
    given = {} if handles is None else {"handles": handles}
    axes.legend(**given, **place, ncols=columns, frameon=False, fontsize=SIZE, labelcolor=ink(axes))


def plate(axes: Axes, x: float, y: float, words: str, colour: str = _DARK, **how: Any) -> None:
    """Words that can be read over anything."""
    box = {**_PLATE, "facecolor": colour}
    text = words.replace("$", r"\$")
    axes.text(x, y, text, color="white", fontsize=SIZE, va="center", bbox=box, zorder=5, clip_on=True, **how)


def empty(axes: Axes, words: str) -> None:
    """Nothing to draw: words instead."""
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", size=SIZE, color=ink(axes))


def drawn(axes: Axes, kind: str = "png", dpi: int = _DPI) -> bytes:
    """The figure as a file: ``png``, ``svg`` or ``pdf``."""
    figure: Any = axes.figure
    with io.BytesIO() as file:
        figure.savefig(file, format=kind, dpi=dpi)
        return file.getvalue()


def kind_of(path: str) -> str:
    """The kind of a file by the end of its name.

    Raises:
        UsageError: figures are not written as such files.
    """
    kind = os.path.splitext(path)[1][1:].lower()
    if kind not in _KINDS:
        raise UsageError(f"{short(path)} is not the name of a picture.", "Use a name that ends in .png, .svg or .pdf.")
    return kind
