"""All measurements in one table, each against the peer that a user would otherwise take: ``python -m benchmarks``.

``--only NAME...`` chooses parts; ``--quick`` checks only that every part works. Exits with 1 if a row has failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from benchmarks import machine, show
from benchmarks.rows import Row

#: part -> the functions that measure it, as module:function
PARTS = {
    "door": ("door:calls",),
    "steps": ("door:steps",),
    "verdict": ("verdict:verdicts",),
    "launch": ("launch:launches", "launch:starts"),
    "memory": ("binder:notebook_memory",),
    "snapshot": ("hands:snapshots",),
    "lines": ("lines:stops", "lines:costs"),
    "release": ("hands:releases", "hands:restarts"),
    "reports": ("reports:reports", "many_reported:many"),
    "growth": ("growth:growth",),
    "timeline": ("face:timeline",),
    "board": ("board:board",),
    "watching": ("watching:watching",),
    "bisection": ("bisection:counts", "bisection:sometimes", "bisection:probes"),
    "reenact": ("reenact:reenactments",),
    "paths": ("paths:comparisons",),
}


def rows_of(part: str, quick: bool) -> Iterator[Row]:
    """The rows of one part; a module that cannot be imported is a failed row."""
    for name in PARTS[part]:
        module, _, function = name.partition(":")
        try:
            work = getattr(import_module(f"benchmarks.{module}"), function)
        except ImportError as error:
            yield Row(part, name, failure=f"ImportError: {error}")
            continue
        yield from show.measured(part, work, quick)


def measure(parts: Sequence[str], quick: bool) -> tuple[dict, list[Row]]:
    """The machine, and the rows of these parts; progress goes to standard error."""
    found = machine.describe()
    load = machine.Load.of_an_idle_moment()
    if load.before > machine.CALM:
        print(f"WARNING: others use {load.before:.0%} of the processors: this machine is not calm.", file=sys.stderr)
    began, rows, seconds = time.monotonic(), list[Row](), dict[str, float]()
    part = ""
    try:
        for part in parts:
            of_part = time.monotonic()
            print(f"{of_part - began:6.0f} s  {part}", file=sys.stderr, flush=True)
            for row in rows_of(part, quick):
                rows.append(row)
            seconds[part] = round(time.monotonic() - of_part, 1)
    except KeyboardInterrupt:  # what was measured before is shown
        rows.append(Row(part, "interrupted", failure="interrupted"))
    found |= {"load": load.as_json(), "seconds": time.monotonic() - began, "seconds_of_parts": seconds, "quick": quick}
    return found, rows


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="few samples of small cases: checks only that every part works"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all samples")
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="also write the table as Markdown, to its place in a document that has one",
    )
    arguments = parser.parse_args(given)
    found, rows = measure(arguments.only or list(PARTS), arguments.quick)
    show.text(rows, machine.head(found))
    if arguments.json:
        arguments.json.write_text(json.dumps(show.as_json(found, rows), indent=1))
    if arguments.markdown:
        show.put(arguments.markdown, show.markdown(rows, machine.head(found)))
    return int(any(row.failure for row in rows))


if __name__ == "__main__":
    sys.exit(main())
