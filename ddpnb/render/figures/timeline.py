"""The time line as a figure: a lane for each rank, with its calls."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch, Rectangle

from ddpnb.errors import UsageError
from ddpnb.recording.timing.quantities import span
from ddpnb.render.figures import canvas
from ddpnb.render.palette import BUSY, FIGURES
from ddpnb.render.views.columns import Shown
from ddpnb.render.views.lanes import DrawnCall, Lane, Lanes
from ddpnb.texts import one_line

_BAR = 0.6  # of the height of a lane
_ROOMY = 24  # lanes at most, for words in them
# Parts of the width for the time at the end in which nothing new happens, where the words have room: at least and most
_LEAST, _STILL, _LETTER = 0.15, 0.4, 0.0085
_STARTUP = 0.2  # of the time after the first call, at most, for that before it
_LONGEST = 52  # characters
_ABSENT = "others wait for it"
_MISMATCH = "not the call of the others"
_Stretch = tuple[float, float, float]  # begin, end, part of the height


def timeline(
    lanes: Lanes,
    ax: Axes | None = None,
    begin: float | None = None,
    end: float | None = None,
    *,
    shown: bool = True,
) -> Axes:
    """The lanes between two moments (seconds of the run), by default all of them.

    A long start-up is cut, and the time at the end in which no rank does anything new: what is between stays visible.

    Args:
        lanes: to draw.
        ax: where to draw; None: a new figure.
        begin, end: the moments.
        shown: whether pyplot may show a new figure.

    Raises:
        UsageError: ``end`` is not after ``begin``.
    """
    rows = lanes.lanes
    height = 0.9 + (0.32 if len(rows) <= _ROOMY else 0.14) * max(1, len(rows))
    (axes,) = canvas.canvas(ax, 10, height, shown=shown)
    drawn = {row.rank: lanes.spans(row.rank) for row in rows}
    news = _last_news(lanes, rows, drawn)
    called = min((calls[0].begin for calls in drawn.values() if calls), default=0.0)
    started = max(min((row.begin for row in rows), default=0.0), called - _STARTUP * (news - called))
    first = started if begin is None else float(begin)
    longest = max((len(_said(row)) for row in rows), default=0)
    still = min(_STILL, max(_LEAST if lanes.now > news else 0.01, _LETTER * longest)) if len(rows) <= _ROOMY else _LEAST
    until = first + max(news - first, 0.01) / (1 - still) if end is None else float(end)
    if not until > first:
        raise UsageError(f"There is nothing between {first:g} s and {until:g} s: end must be after begin.")
    cut = lanes.now - until if end is None and lanes.now > until else 0.0
    axes.set_xlim(first, until)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    since = "seconds of the run" if lanes.since_start else "seconds since the first call"
    canvas.plain(axes, f"{since}{f'; then {span(cut)} without anything new' if cut else ''}")
    every = 1 if len(rows) <= _ROOMY else 4
    axes.set_yticks(range(0, len(rows), every), [f"rank {row.rank}" for row in rows[::every]])
    for label, row in zip(axes.get_yticklabels(), rows[::every], strict=True):
        if row.mark is not None:
            label.set_color(FIGURES["error"])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    used: set[str] = set()
    for at, row in enumerate(rows):
        spans = [one for one in drawn[row.rank] if one.end >= first and one.begin <= until]
        spans += [DrawnCall(*hold[:1], *hold, Shown.HELD, "held", -1) for hold in lanes.holds(row.rank)]
        used |= _lane(axes, at, row, sorted(spans, key=lambda one: one.begin), lanes.now)
        if len(rows) <= _ROOMY:
            _words(axes, at, row, spans, first, until)
    if lanes.count:
        canvas.legend(
            axes, [_patch(name) for name in (*_STYLES, _MISMATCH, _ABSENT) if name in used], columns=7, above=True
        )
    else:
        canvas.empty(axes, "no collective recorded")
    return axes


def _last_news(lanes: Lanes, rows: Iterable[Lane], drawn: dict[int, list[DrawnCall]]) -> float:
    """When a rank last did something new."""
    moments = [0.0]
    for row in rows:
        moments += [row.until] if row.until < lanes.now else []
        for one in drawn[row.rank]:
            moments += [one.begin, *(at for at in (one.met, one.end) if at < lanes.now)]
    return max(moments)


def _lane(axes: Axes, at: int, row: Lane, spans: list[DrawnCall], now: float) -> set[str]:
    """Draw one lane: one collection for each kind of stretch, however many calls there are. Returns the kinds."""
    stretches = _stretches(row, spans, now)
    low = at + _BAR / 2
    for name, ones in stretches.items():
        boxes = [_box(begin, end, low - _BAR * part, low) for begin, end, part in ones]
        axes.add_collection(PolyCollection(boxes, **_STYLES[name]))
    used = {name for name, ones in stretches.items() if ones}
    mark = row.mark
    if mark is None:
        return used
    wrong = next((one for one in spans if one.number == mark.number), None) if mark.kind == "mismatch" else None
    if mark.kind == "mismatch" and wrong is None:
        return used
    begin, end = (wrong.begin, wrong.end) if wrong is not None else (_absent(row), now)
    name = _ABSENT if mark.kind == "absent" else _MISMATCH
    axes.add_patch(Rectangle((begin, at - _BAR / 2), end - begin, _BAR, zorder=4, **_OUTLINES[name]))
    return {*used, name}


def _stretches(row: Lane, spans: list[DrawnCall], now: float) -> dict[str, list[_Stretch]]:
    until = min(row.until, now)
    found: dict[str, list[_Stretch]] = {name: [] for name in _STYLES}
    if until > row.begin:
        found["computing"] = [(begin, end, 1.0) for begin, end in _between(spans, row.begin, until)]
    if row.stands_in >= 0 and now > until:
        found["waiting"].append((until, now, 1.0))
    for one in spans:
        part = 0.45 if one.shown is Shown.LEFT else 1.0
        if one.shown in (Shown.HELD, Shown.FAILED):
            found["held" if one.shown is Shown.HELD else "failed"].append((one.begin, one.end, 1.0))
            continue
        if one.met > one.begin:
            found["waiting"].append((one.begin, one.met, part))
        if one.end > one.met or one.shown is Shown.LEFT:
            found["in the collective"].append((one.met, one.end, part))
    return found


def _words(axes: Axes, at: int, row: Lane, spans: list[DrawnCall], first: float, until: float) -> None:
    """What the rank is doing, on a plate."""
    width = until - first
    open_ = [one for one in spans if one.shown in (Shown.OPEN, Shown.HELD)]
    words = _said(row)
    if row.mark is not None:
        wrong = [one.begin for one in spans if one.number == row.mark.number]
        begin = wrong[0] if wrong else _absent(row)
    elif words and (open_ or row.until <= until):
        begin = row.until if row.until <= until else open_[-1].begin
    else:
        return
    begin = min(max(begin, first), until)
    room = _LETTER * len(words) * width
    late = begin + room > until and begin - room > first  # they would end outside, and have room on the left of it
    colour = {"colour": _PLATE} if row.mark is not None else {}
    place = begin + (-0.008 if late else 0.008) * width
    canvas.plate(axes, place, at, words, ha="right" if late else "left", **colour)


def _said(row: Lane) -> str:
    return one_line(row.mark.words if row.mark is not None else row.doing, _LONGEST)


def _absent(row: Lane) -> float:
    """Since when: since it stopped, or since the first rank waits for it."""
    return row.until if math.isfinite(row.until) else row.since


def _between(spans: Iterable[DrawnCall], begin: float, end: float) -> list[tuple[float, float]]:
    """The intervals between the calls."""
    found: list[tuple[float, float]] = []
    for one in spans:
        if one.shown is Shown.LEFT:
            continue
        if one.begin > begin:
            found.append((begin, min(one.begin, end)))
        begin = max(begin, one.end)
    return [*found, (begin, end)] if end > begin else found


def _box(left: float, right: float, top: float, bottom: float) -> list[tuple[float, float]]:
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def _patch(name: str) -> Patch:
    return Patch(label=name, **(_STYLES.get(name) or _OUTLINES[name]))


_PLATE = "#b34700"  # below white letters
_STYLES: dict[str, dict[str, Any]] = {
    "computing": {"facecolor": BUSY[0], "alpha": 0.4, "linewidth": 0.0},
    "waiting": {"facecolor": "none", "edgecolor": FIGURES["warning"], "hatch": "////", "linewidth": 0.5},
    "in the collective": {"facecolor": FIGURES["ok"], "linewidth": 0.0},
    "held": {"facecolor": "none", "edgecolor": FIGURES["note"], "hatch": "xxx", "linewidth": 0.8},
    "failed": {"facecolor": FIGURES["error"], "edgecolor": FIGURES["error"], "linewidth": 0.8},
}
_OUTLINES: dict[str, dict[str, Any]] = {
    _MISMATCH: {"fill": False, "edgecolor": FIGURES["error"], "linewidth": 1.6},
    _ABSENT: {"fill": False, "edgecolor": FIGURES["error"], "linewidth": 1.6, "linestyle": "--"},
}
