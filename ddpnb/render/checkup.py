"""What the doctor found, as a document: sections, one line for each check, and what to do where it is not ok."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ddpnb.recording.checks import SECTIONS, Check, CollectiveTime
from ddpnb.render import as_html, markup
from ddpnb.render.document import Block, Drawn, Group, Heading, Icon, Items, Paragraph, Span, Table
from ddpnb.texts import shortened

_MARKS = {"ok": ("done", "ok", "✓"), "warning": ("warning", "warning", "!"), "unknown": ("why", "faint", "?")}
_AFTER = ("timings",)  # sections that follow the start-up
_LONGEST = 2000  # characters of a detail
_NAME = 100  # and of a name
_WIDEST = 14  # of the column with the names


def document(
    headline: str,
    checks: Sequence[Check],
    startup: Sequence[Block],
    collectives: Sequence[CollectiveTime],
    description: str,
    *,
    verbose: bool = False,
) -> list[Block]:
    """The report without the cards of findings.

    Args:
        headline: its first line.
        checks: of the machine.
        startup: the start-up steps.
        collectives: how long they took.
        description: ``2 ranks, gloo, cpu``.
        verbose: with the details of each check.
    """
    width = min(_WIDEST, max((len(one.name) for one in checks), default=0))
    head = Paragraph(Drawn("", "ddpnb: "), Span(f"{headline}{summary(checks)}", strong=True), kind="summary")
    before = [section for name in SECTIONS if name not in _AFTER for section in _section(name, checks, width, verbose)]
    after = [section for name in _AFTER for section in _section(name, checks, width, verbose)]
    started = Group((Heading("start-up"), *startup))
    parts = [head, *before, started, *after, *([_timings(collectives, description)] if collectives else [])]
    return [Group([one for part in parts for one in (part, Paragraph())][:-1], kind="page", indented=False)]


def summary(checks: Sequence[Check]) -> str:
    """How many checks are not ok; empty if all are."""
    warnings = sum(one.state == "warning" for one in checks)
    unknown = sum(one.state == "unknown" for one in checks)
    parts = [f"{warnings} warning{'s' * (warnings > 1)}"] if warnings else []
    parts += [f"{unknown} unknown"] if unknown else []
    return f"; of the checks: {', '.join(parts)}" if parts else ""


def _section(name: str, checks: Sequence[Check], width: int, verbose: bool) -> list[Block]:
    chosen = [_check(one, width, verbose=verbose) for one in checks if one.section == name]
    return [Group((Heading(name), Items(chosen, marked=False)))] if chosen else []


def _check(check: Check, width: int, *, verbose: bool) -> list[Block]:
    """Its line, what to do, and its details, which a page unfolds."""
    image, role, mark = _MARKS[check.state]
    code = Span(f"  [{check.code}]", check.state) if check.code else ""
    line = (
        Icon(image, role),
        Drawn("", f"{mark}  "),
        f"{shortened(check.name, _NAME):<{width}}  ",
        shortened(check.told, _LONGEST),
        code,
    )
    shown: list[Block] = [Paragraph(*line)]
    shown += [Paragraph(f"→ {shortened(check.todo, _LONGEST)}")] if check.todo and check.state != "ok" else []
    details = [Paragraph(f"{shortened(name, _NAME)}: {_value(value)}") for name, value in check.details.items()]
    if not verbose:
        return [*shown, Drawn(markup.folded("details", as_html.html(*details)))] if details else shown
    return [*shown, *details]


def _value(value: Any) -> str:
    if isinstance(value, Mapping) and all(isinstance(one, (str, int, float)) for one in value.values()):  # pyright: ignore[reportUnknownVariableType]
        shown = ", ".join(f"{name} {one}" for name, one in value.items())  # pyright: ignore[reportUnknownVariableType]
    else:
        shown = value if isinstance(value, str) else json.dumps(value)
    return shortened(shown, _LONGEST)


def _timings(collectives: Sequence[CollectiveTime], description: str) -> Group:
    heading = Heading(f"timings of collectives ({description}; algbw and busbw as in nccl-tests)")
    return Group((heading, times(collectives)))


def times(collectives: Sequence[CollectiveTime]) -> Table:
    """A row for each operation and size: the median, how far the ranks are apart, and bytes per second."""
    head = ("operation", "size", "calls", "median", "of the ranks", "algbw", "busbw")
    return Table("timings of collectives", head, [_times(one) for one in collectives])


def _times(one: CollectiveTime) -> tuple[str, ...]:
    low, high = min(one.medians.values(), default=0.0), one.latency
    return (
        one.op,
        _bytes(one.size) if one.size else "",
        str(one.to_json()["calls"]),
        _seconds(high),
        f"{_seconds(low)} to {_seconds(high)}",
        f"{_bytes(one.algorithm_bandwidth)}/s" if one.size else "",
        f"{_bytes(one.bus_bandwidth)}/s" if one.size and len(one.seconds) > 1 else "",
    )


def _seconds(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.2f} s"


def _bytes(value: float) -> str:
    """``64 MiB``, ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.3g} {unit}"
        value /= 1024
    raise AssertionError
