"""How the cost of a diagnosis grows with ranks, and with calls per rank: ``python -m benchmarks.growth [--plot FILE]``.

Each case runs in a process of its own. *Recordings* are made in memory, which is not part of the time: 50 calls on each rank; the time is
that of the diagnosis, its text, HTML and JSON, the memory the peak of the process, Recording included. *Dumps* are files of the flight
recorder with 100 entries and their stacks on each rank; the time is that of all processes of ``ddpnb diagnose``, from start to end, the
memory the sum of their peaks. torch's own analyser reads the same files. Times are processor times: other work on the machine
hardly changes how they grow.

A case is either a rank that never calls the last all-reduce, a rank that calls it with another shape, or no error at all. The exponent
is the slope of a line through the logarithms, from a 64th of the largest size on: 1 is linear growth, 2 quadratic.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import diagnose as handmade
from benchmarks import machine, reports, show
from benchmarks.rows import Goal, Row, quantity

RANKS, CALLS = (16, 64, 256, 1024, 4096, 16_384), 50
EVENTS, FIXED_RANKS = (125, 500, 2000, 8000), 64
DUMP_RANKS, DUMP_EVENTS, ENTRIES = (16, 64, 256, 1024, 4096), (124, 500, 2000, 8000), 100
OFFICIAL_UP_TO = 64  # ranks: it takes minutes for more
QUICK_RANKS, QUICK_EVENTS = (16, 64), (25, 50)
ROUNDS, LONGEST_S, FITTED = 3, 580, 64  # rounds: of all but the largest
LINEAR = 1.25  # an exponent: some work is done once, and large memory is slower
CULPRIT = 3
KINDS: dict[str, Callable[[int, int, int], Any]] = {}
PICTURE = Path(__file__).with_name("growth.svg")


def kind(name: str) -> Callable[[Any], Any]:
    def named(function: Any) -> Any:
        KINDS[name] = function
        return function

    return named


@cache
def everyone(world: int) -> tuple[int, ...]:
    return tuple(range(world))


@kind("missing rank")
def one_missing(rank: int, world: int, count: int) -> Any:
    """Rank 3 computes, and all others wait in the last all-reduce."""
    gone = rank == CULPRIT
    made = handmade.calls(everyone(world), count - gone, not gone)
    return handmade.record(rank, world, made, "ended" if gone else "stands")


@kind("mismatch")
def mismatch(rank: int, world: int, count: int) -> Any:
    return handmade.record(rank, world, handmade.calls(everyone(world), count, True, 5 if rank == CULPRIT else 4))


@kind("healthy")
def healthy(rank: int, world: int, count: int) -> Any:
    return handmade.record(rank, world, handmade.calls(everyone(world), count, False), "computes")


@dataclass
class Point:
    """A case: processor seconds of each round, peak memory in MB, and what was found."""

    size: int
    seconds: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    culprits: list[int] = field(default_factory=list)
    lines: int = 0
    html: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def exponent(points: Mapping[int, float] | dict[int, float]) -> float:
    """The slope of a line through the logarithms of the larger points.

    Example:
        >>> exponent({1: 9.0, 64: 64.0, 128: 128.0, 1024: 1024.0})
        1.0
    """
    largest = max(points)
    used = [(math.log(n), math.log(value)) for n, value in points.items() if n * FITTED >= largest]
    if len(used) < 2:
        return math.nan
    slope, _ = statistics.linear_regression(*zip(*used, strict=True))
    return slope


# -- recordings, made by hand


def in_process(name: str, world: int, count: int) -> dict[str, Any]:
    """What the child measures: a diagnosis of a Recording, and what is shown of it."""
    from ddpnb.recording.recording import Recording
    from ddpnb.render import card
    from ddpnb.rules.diagnose import diagnose

    records = {rank: KINDS[name](rank, world, count) for rank in range(world)}
    recording = Recording(world, records, {handmade.FILE: handmade.SOURCE}, host={"cores": world})
    began = time.process_time()
    found = diagnose(recording)
    text, html = card.text(found, width=100), card.html(found)
    json.dumps(found.to_json())
    seconds = time.process_time() - began
    culprits = sorted({rank for finding in found.errors for rank in finding.culprits})
    return {
        "seconds": seconds,
        "memory": reports.peak(os.getpid()) / 1024,
        "culprits": culprits,
        "lines": text.count("\n") + 1,
        "html": len(html),
    }


def recordings(name: str, world: int, count: int, size: int, rounds: int) -> Point:
    point = Point(size)
    for _ in range(rounds):
        command = [sys.executable, "-m", "benchmarks.growth", "--case", name, str(world), str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_S, cwd=machine.ROOT)
        if done.returncode:
            raise RuntimeError(f"{name}, {world} ranks: {done.stderr[-300:]}")
        said = json.loads(done.stdout)
        point.seconds.append(said["seconds"])
        point.memory.append(said["memory"])
        point.culprits, point.lines, point.html = said["culprits"], said["lines"], said["html"]
    _check(name, world, point.culprits)
    return point


def _check(name: str, world: int, culprits: list[int]) -> None:
    if culprits != ([] if name == "healthy" else [CULPRIT]):
        raise RuntimeError(f"{name}, {world} ranks: the culprits are {culprits}")


# -- dumps on disk


def dumps(name: str, world: int, entries: int, size: int, rounds: int, official: bool) -> tuple[Point, Point | None]:
    """``ddpnb diagnose`` on dumps of a kind, and torch's program on the same files."""
    ours, theirs = Point(size), Point(size)
    with tempfile.TemporaryDirectory() as folder:
        reports.write(folder, world, entries, name)
        for _ in range(rounds):
            _took(ours, made := reports.run(reports.OURS, folder))
            named = re.findall(r"^Ranks? (\d+)\b(?!-|,)[^\n]*", made.text, re.MULTILINE)
            ours.culprits = sorted({int(rank) for rank in named[:1]}) if "hang:" in made.text else []
            ours.lines = made.text.count("\n")
            if official:
                _took(theirs, reports.run(reports.OFFICIAL, folder, "-p", "nccl_trace_rank_"))
    _check(name, world, ours.culprits)
    return ours, theirs if theirs.seconds else None


def _took(point: Point, made: reports.Run) -> None:
    point.seconds.append(made.processor)
    point.memory.append(made.memory)


# -- the series


@dataclass
class Series:
    """One line of the plot: a kind, from recordings or dumps, by ranks or by events."""

    source: str
    name: str
    by: str
    points: list[Point] = field(default_factory=list)
    peer: list[Point] = field(default_factory=list)

    @property
    def exponent(self) -> float:
        return exponent({one.size: one.median for one in self.points})

    @property
    def of_memory(self) -> float:
        return exponent({one.size: max(one.memory) for one in self.points})

    def row(self) -> Row:
        first, last = self.points[0], self.points[-1]
        what = f"{self.source}, {self.name}: time by {self.by}, {first.size:,} to {last.size:,}"
        note = (
            f"{quantity(first.median, 's')} to {quantity(last.median, 's')}; memory {quantity(max(first.memory), 'MB')} to "
            f"{quantity(max(last.memory), 'MB')} (exponent {self.of_memory:.2f}); {last.lines} lines of text"
        )
        theirs = exponent({one.size: one.median for one in self.peer}) if self.peer else math.nan
        if self.peer:
            note += f"; peer {quantity(self.peer[-1].median, 's')} and {quantity(max(self.peer[-1].memory), 'MB')} for {self.peer[-1].size:,}"
        goal = Goal(LINEAR, "median")
        ours = (self.exponent,) if math.isfinite(self.exponent) else ()
        peer = (theirs,) if math.isfinite(theirs) else ()
        points = {str(one.size): [one.seconds, one.memory] for one in self.points}
        of_peer = {str(one.size): [one.seconds, one.memory] for one in self.peer}
        return Row(
            "growth", what, ours, "(exponent)", "torchfrtrace" if peer else "", peer, goal, note,
            detail={"points": points, "peer": of_peer},
        )  # fmt: skip


def series(quick: bool) -> Iterator[Series]:
    """All of them, each when it is measured."""

    def rounds(size: int, sizes: tuple[int, ...]) -> int:
        return 1 if quick or size == max(sizes) else ROUNDS

    for name in KINDS if not quick else ["missing rank"]:
        by_ranks = Series("recording", name, "ranks")
        sizes = QUICK_RANKS if quick else RANKS
        for world in sizes:
            by_ranks.points.append(recordings(name, world, CALLS, world, rounds(world, sizes)))
        yield by_ranks
        by_events = Series("recording", name, "calls per rank")
        sizes = QUICK_EVENTS if quick else EVENTS
        for count in sizes:
            world = 8 if quick else FIXED_RANKS
            by_events.points.append(recordings(name, world, count, count, rounds(count, sizes)))
        yield by_events
    for name in KINDS if not quick else ["mismatch"]:
        by_ranks = Series("dumps", name, "ranks")
        for world in (8, 16) if quick else DUMP_RANKS:
            official = not quick and world <= OFFICIAL_UP_TO and name == "missing rank"
            ours, theirs = dumps(name, world, 24 if quick else ENTRIES, world, rounds(world, DUMP_RANKS), official)
            by_ranks.points.append(ours)
            by_ranks.peer += [theirs] if theirs is not None else []
        yield by_ranks
        if quick:
            continue
        by_events = Series("dumps", name, "entries per rank")
        for count in DUMP_EVENTS:
            ours, theirs = dumps(name, FIXED_RANKS, count, count, rounds(count, DUMP_EVENTS), name == "missing rank")
            by_events.points.append(ours)
            by_events.peer += [theirs] if theirs is not None else []
        yield by_events


def growth(quick: bool = False) -> Iterator[Row]:
    """growth of the diagnosis with ranks and calls"""
    for one in series(quick):
        yield one.row()


# -- the plot


def plot(made: list[Series], path: Path, words: str) -> None:
    """Time and memory, by ranks and by events, on logarithmic scales."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    colours = dict(zip(KINDS, ("#0072b2", "#d55e00", "#009e73"), strict=True))
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "growth", "font.size": 8}):
        figure, axes = plt.subplots(2, 2, figsize=(10, 7.2), layout="constrained")
        for column, by in enumerate((("ranks",), ("calls per rank", "entries per rank"))):
            for row, what in enumerate(("processor seconds", "MB")):
                ax = axes[row][column]
                for one in made:
                    if one.by not in by:
                        continue
                    style = {"recording": "o-", "dumps": "s--"}[one.source]
                    label = f"{one.source}, {one.name} ({one.exponent:.2f}; {one.of_memory:.2f})"
                    ax.plot(*_values(one.points, what), style, color=colours[one.name], label=label, ms=4, lw=1.2)
                    if one.peer:
                        ax.plot(
                            *_values(one.peer, what), "x:", color="#666666", label="torchfrtrace, missing rank", ms=5
                        )
                ax.set(xscale="log", yscale="log", xlabel=" / ".join(by), ylabel=what)
                sizes = sorted({point.size for one in made if one.by == by[0] for point in one.points})
                ax.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=30)
                ax.xaxis.set_minor_locator(mpl.ticker.NullLocator())
                ax.grid(visible=True, which="major", lw=0.3)
                if row == 0:
                    ax.legend(fontsize=6, frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
        figure.suptitle(f"Growth of a diagnosis (exponents of time and memory in brackets)\n{words}", fontsize=8)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def _values(points: list[Point], what: str) -> tuple[list[int], list[float]]:
    return [one.size for one in points], [one.median if what != "MB" else max(one.memory) for one in points]


def main() -> int:
    given = sys.argv[1:]
    if given[:1] == ["--case"]:
        print(json.dumps(in_process(given[1], int(given[2]), int(given[3]))))
        return 0
    quick = "--quick" in given
    path = Path(given[given.index("--plot") + 1]) if "--plot" in given else None if quick else PICTURE
    made: list[Series] = []
    for one in series(quick):
        made.append(one)
        print(
            f"{one.source}, {one.name}, {one.by}: exponent {one.exponent:.2f}, of memory {one.of_memory:.2f}",
            flush=True,
        )
    show.text([one.row() for one in made])
    if path is not None:
        found = machine.describe()
        plot(
            made,
            path,
            f"{found['cpu']}, {found['cores']} cores; Python {found['python']}; ddpnb {found['ddpnb']}; {found['date']}",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
