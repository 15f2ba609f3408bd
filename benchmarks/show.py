"""The table of rows: as text, Markdown and JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.rows import Row, spread, verdict, wanted

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
COLUMNS = ("part", "what", "ddpnb", "peer", "its result", "ratio", "goal", "", "note")
_WIDTH = 210
Measure = Callable[[bool], Iterable[Row]]


def cells(row: Row) -> tuple[str, ...]:
    ratio = "" if row.ratio is None else f"x{row.ratio:.3g}"
    note = row.failure or row.note
    ours, theirs = (spread(one, row.unit) for one in (row.ours, row.theirs))
    theirs = theirs if row.theirs else ""
    return row.part, row.what, ours, row.peer, theirs, ratio, wanted(row.goal, row.unit), verdict(row), note


def text(rows: Iterable[Row], head: str = "") -> None:
    """Print it, as wide as the terminal, and wide enough to be read in a file."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    for name in COLUMNS:
        table.add_column(name, overflow="fold")
    before = ""
    for row in rows:
        part, *others = cells(row)
        table.add_row(part if part != before else "", *others, style="" if row.met is not False else "bold")
        before = part
    if head:
        console.print(head, markup=False)
    console.print(table, markup=False)


def markdown(rows: Iterable[Row], head: str = "") -> str:
    lines = [
        *(f"{line}  " for line in head.splitlines()),
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|" + "---|" * len(COLUMNS),
    ]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row)) + " |" for row in rows]
    return "\n".join(lines).strip() + "\n"


def put(path: Path, made: str) -> None:
    """Write the table to a file, or to its place in a document that has one."""
    before, begin, after = path.read_text().partition(BEGIN) if path.exists() else ("", "", "")
    _, end, after = after.partition(END)
    path.write_text(f"{before}{BEGIN}\n{made}{END}{after}" if begin and end else made)


def measured(part: str, measure: Measure, quick: bool) -> Iterator[Row]:
    """The rows of a measurement; a failure is a row too."""
    try:
        yield from measure(quick)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        yield Row(part, measure.__doc__ or measure.__name__, failure=reason[:300])


def as_json(machine: dict[str, Any], rows: Iterable[Row]) -> dict[str, Any]:
    return {"schema": 1, "machine": machine, "rows": [row.as_json() for row in rows]}


def alone(part: str, *measures: Measure) -> None:
    """What ``python -m benchmarks.NAME`` prints; exits with 1 if something failed."""
    rows = [row for measure in measures for row in measured(part, measure, "--quick" in sys.argv[1:])]
    text(rows)
    raise SystemExit(any(row.failure for row in rows))
