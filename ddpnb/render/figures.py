"""Figures: what the widgets show, as pictures for saving or for a report.

They use matplotlib objects only: nothing is displayed, and no global state is changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ddpnb.render.palette import BUSY, COLOURS
from ddpnb.render.text import printable
from ddpnb.views.columns import Shown
from ddpnb.views.lanes import DrawnCall, Lane, Lanes

_LIGHT = 0
_BAR = 0.6  # of the height of a lane
_HATCH = "////"
_ROOMY = 24  # lanes at most, for words in them
_INK, _FAINT = "#1b1f24", "#57606a"


def timeline(lanes: Lanes, begin: float | None = None, end: float | None = None) -> Figure:
    """The lanes as a picture, between two moments (seconds since the origin); by default all of them."""
    rows = lanes.lanes
    with rc_context({"hatch.linewidth": 0.8, "svg.hashsalt": "ddpnb", "font.size": 8}):
        figure = Figure(
            figsize=(11, 0.9 + max(0.16, 0.34 if len(rows) <= _ROOMY else 0.16) * max(1, len(rows))),
            layout="constrained",
        )
        axes = figure.add_subplot()
        last = lanes.now if end is None else end
        first = min((row.begin for row in rows), default=0.0) if begin is None else begin
        axes.set_xlim(first - last, (last - first) * 0.01 or 1.0)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        every = 1 if len(rows) <= _ROOMY else 4
        axes.set_yticks(range(0, len(rows), every), [f"rank {row.rank}" for row in rows[::every]])
        for label, row in zip(axes.get_yticklabels(), rows[::every], strict=True):
            label.set_color(COLOURS["error"][_LIGHT] if row.mark is not None else _FAINT)
        axes.tick_params(length=0, colors=_FAINT)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("seconds before now", color=_FAINT)
        for at, row in enumerate(rows):
            spans = [span for span in lanes.spans(row.rank) if span.end >= first and span.begin <= last]
            _lane(axes, at, row, spans, lanes.now, last)
            if len(rows) <= _ROOMY:
                _words(axes, at, row, spans, last, (last - first) or 1.0)
        if not lanes.count:
            axes.text(
                0.5, 0.5, "no collective recorded", transform=axes.transAxes, ha="center", va="center", color=_FAINT
            )
        figure.legend(handles=_legend(), loc="outside lower center", ncols=7, frameon=False, labelcolor=_INK)
        return figure


def _lane(axes: Axes, at: int, row: Lane, spans: list[DrawnCall], now: float, zero: float) -> None:
    """The stretches of one lane: one collection for each kind, however many calls there are."""
    until = min(row.until, now)
    kinds: dict[str, list[tuple[float, float, float]]] = {name: [] for name in _STYLES}
    if until > row.begin:
        kinds["computing"] = [(begin, end, 1.0) for begin, end in _between(spans, row.begin, until)]
    if row.stands_in >= 0 and now > until:
        kinds["waiting"].append((until, now, 1.0))
    for span in spans:
        part = 0.45 if span.shown is Shown.LEFT else 1.0
        if span.shown in (Shown.HELD, Shown.FAILED):
            kinds["held" if span.shown is Shown.HELD else "failed"].append((span.begin, span.end, 1.0))
            continue
        if span.met > span.begin:
            kinds["waiting"].append((span.begin, span.met, part))
        if span.end > span.met or span.shown is Shown.LEFT:
            kinds["in the collective"].append((span.met, span.end, part))
    low = at + _BAR / 2
    for name, stretches in kinds.items():
        boxes = [_box(begin - zero, end - zero, low - _BAR * part, low) for begin, end, part in stretches]
        axes.add_collection(PolyCollection(boxes, **_STYLES[name]))
    mark = row.mark
    if mark is not None:
        wrong = next((span for span in spans if span.number == mark.number), None) if mark.kind == "mismatch" else None
        begin, end = (wrong.begin, wrong.end) if wrong is not None else (_absent(row), now)
        if mark.kind == "absent" or wrong is not None:
            style = "--" if mark.kind == "absent" else "-"
            axes.add_patch(
                Rectangle((begin - zero, at - _BAR / 2), end - begin, _BAR, fill=False, edgecolor=_ERROR, linewidth=1.6, linestyle=style, zorder=4)
            )  # fmt: skip


def _words(axes: Axes, at: int, row: Lane, spans: list[DrawnCall], zero: float, width: float) -> None:
    """What the rank is doing, on a plate."""
    open_ = [span for span in spans if span.shown in (Shown.OPEN, Shown.HELD)]
    if row.mark is not None:
        text, colour = row.mark.words, _ERROR
        wrong = [span.begin for span in spans if span.number == row.mark.number]
        begin = wrong[0] if wrong else _absent(row)
    elif row.doing and (open_ or row.until <= zero):
        text, colour, begin = row.doing, _INK, row.until if row.until <= zero else open_[-1].begin
    else:
        return
    plate = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none"}
    late = begin - zero > -0.25 * width  # then there is more room on the left of it
    axes.text(
        begin - zero + (-0.006 if late else 0.006) * width, at, printable(text).replace("$", r"\$"), color=colour,
        va="center", ha="right" if late else "left", fontsize=7.5, fontweight="bold", bbox=plate, zorder=5, clip_on=True,
    )  # fmt: skip


def _absent(row: Lane) -> float:
    """Since when: since it stopped, or since the first rank waits for it."""
    return row.until if math.isfinite(row.until) else row.since


def _between(spans: Iterable[DrawnCall], begin: float, end: float) -> list[tuple[float, float]]:
    """The intervals between the calls."""
    found: list[tuple[float, float]] = []
    for span in spans:
        if span.shown is Shown.LEFT:
            continue
        if span.begin > begin:
            found.append((begin, min(span.begin, end)))
        begin = max(begin, span.end)
    return [*found, (begin, end)] if end > begin else found


def _box(left: float, right: float, top: float, bottom: float) -> list[tuple[float, float]]:
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def _legend() -> list[Patch]:
    marks = [
        Patch(fill=False, edgecolor=_ERROR, linewidth=1.6, label="mismatch"),
        Patch(fill=False, edgecolor=_ERROR, linewidth=1.2, linestyle="--", label="absent"),
    ]
    return [*(Patch(label=name, **style) for name, style in _STYLES.items()), *marks]


_ERROR = COLOURS["error"][_LIGHT]
_STYLES = {
    "computing": {"facecolor": BUSY[_LIGHT], "alpha": 0.4, "linewidth": 0.0},
    "waiting": {"facecolor": "none", "edgecolor": COLOURS["warning"][_LIGHT], "hatch": _HATCH, "linewidth": 0.5},
    "in the collective": {"facecolor": COLOURS["ok"][_LIGHT], "linewidth": 0.0},
    "held": {"facecolor": "none", "edgecolor": COLOURS["note"][_LIGHT], "hatch": "xxx", "linewidth": 0.8},
    "failed": {"facecolor": _ERROR, "edgecolor": _ERROR, "linewidth": 0.8},
}
