"""What the doctor found, as text: sections, one line for each check, and what to do where it is not ok."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ddpnb.recording.checks import SECTIONS, Check, CollectiveTime
from ddpnb.render.terminal import Paragraph, output, table
from ddpnb.texts import printable

_MARKS = {"ok": "✓", "warning": "!", "unknown": "?"}
_AFTER = ("timings",)  # sections that follow the start-up
_LONGEST = 2000  # characters of a detail
_WIDEST = 14  # of the column with the names


def text(
    headline: str,
    checks: Sequence[Check],
    startup: str,
    collectives: Sequence[CollectiveTime],
    description: str,
    *,
    verbose: bool = False,
) -> str:
    """The report without the cards of findings.

    Args:
        headline: its first line.
        checks: of the machine.
        startup: the start-up steps, as text.
        collectives: how long they took.
        description: ``2 ranks, gloo, cpu``.
        verbose: with the details of each check.
    """
    width = min(_WIDEST, max((len(one.name) for one in checks), default=0))
    before = [name for name in SECTIONS if name not in _AFTER]
    parts = [f"ddpnb: {headline}{summary(checks)}"]
    parts += [_section(name, checks, width, verbose=verbose) for name in before]
    parts.append(f"start-up\n{_indented(startup)}")
    parts += [_section(name, checks, width, verbose=verbose) for name in _AFTER]
    if collectives:
        parts.append(
            f"timings of collectives ({description}; algbw and busbw as in nccl-tests)\n{_indented(times(collectives))}"
        )
    return printable("\n\n".join(filter(None, parts)))


def summary(checks: Sequence[Check]) -> str:
    """How many checks are not ok; empty if all are."""
    warnings = sum(one.state == "warning" for one in checks)
    unknown = sum(one.state == "unknown" for one in checks)
    parts = [f"{warnings} warning{'s' * (warnings > 1)}"] if warnings else []
    parts += [f"{unknown} unknown"] if unknown else []
    return f"; of the checks: {', '.join(parts)}" if parts else ""


def _section(name: str, checks: Sequence[Check], width: int, *, verbose: bool) -> str:
    chosen = [one for one in checks if one.section == name]
    if not chosen:
        return ""
    rows = [line for one in chosen for line in _lines(one, width, verbose=verbose)]
    return f"{name}\n{output(*rows)}"


def _lines(check: Check, width: int, *, verbose: bool) -> Iterator[Paragraph]:
    start = f"  {_MARKS[check.state]}  {check.name:<{width}}  "
    rest = " " * (width + 7)
    code = (f"[{check.code}]", check.state) if check.code else None
    yield Paragraph(check.told, first=start, rest=rest, tag=code)
    if check.todo and check.state != "ok":
        yield Paragraph(check.todo, first=f"{rest}→ ", rest=f"{rest}  ")
    if verbose:
        for name, value in check.details.items():
            yield Paragraph(f"{name}: {_value(value)}", first=rest, rest=f"{rest}  ")


def _value(value: Any) -> str:
    if isinstance(value, Mapping) and all(isinstance(one, (str, int, float)) for one in value.values()):  # pyright: ignore[reportUnknownVariableType]
        shown = ", ".join(f"{name} {one}" for name, one in value.items())  # pyright: ignore[reportUnknownVariableType]
    else:
        shown = value if isinstance(value, str) else json.dumps(value)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"


def times(collectives: Sequence[CollectiveTime]) -> str:
    """A row for each operation and size: the median, how far the ranks are apart, and bytes per second."""
    rows = [["operation", "size", "calls", "median", "of the ranks", "algbw", "busbw"]]
    for one in collectives:
        low, high = min(one.medians.values(), default=0.0), one.latency
        rows.append(
            [
                one.op,
                _bytes(one.size) if one.size else "",
                str(one.to_json()["calls"]),
                _seconds(high),
                f"{_seconds(low)} to {_seconds(high)}",
                f"{_bytes(one.algorithm_bandwidth)}/s" if one.size else "",
                f"{_bytes(one.bus_bandwidth)}/s" if one.size and len(one.seconds) > 1 else "",
            ]
        )
    return table(rows)


def _seconds(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.2f} s"


def _bytes(value: float) -> str:
    """``64 MiB``, ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.3g} {unit}"
        value /= 1024
    raise AssertionError


def _indented(shown: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in shown.splitlines())
