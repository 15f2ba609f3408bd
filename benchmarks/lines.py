"""What holds at lines take: until ranks are held and shown, a step over a line, and what a hold costs where it does not stop.

4 ranks on gloo. ``python -m benchmarks.lines``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import ddpnb
from benchmarks.rows import Goal, Row
from benchmarks.show import alone

RANKS, STOPS = 4, 20
_HERE = Path(__file__).name


def steps(count, seconds):
    """Steps that compute for a while, each through some lines of Python; the median step in seconds."""
    import statistics
    import time

    def step(number):
        end = time.thread_time() + seconds
        total = 0
        while time.thread_time() < end:
            total += number
            total -= number
        return total

    def elsewhere(number):
        return number

    taken = []
    for number in range(count):
        began = time.perf_counter()
        step(number)
        taken.append(time.perf_counter() - began)
    elsewhere(0)
    return statistics.median(taken)


def passes(count):
    """Seconds of processor time for a pass of a line."""
    import time

    total = 0
    began = time.thread_time()
    for number in range(count):
        total += number  # held
    return (time.thread_time() - began) / count


def walks(count):
    """Lines to step over."""
    import torch
    import torch.distributed as dist

    total = 0
    for number in range(count):
        one = number + 1  # stopped
        two = one * 2
        total += two
    dist.all_reduce(torch.ones(1))
    return total


def line_of(comment: str) -> str:
    """The place of the line with this comment in this file."""
    lines = Path(__file__).read_text().splitlines()
    return f"{_HERE}:{next(number for number, line in enumerate(lines, 1) if line.endswith(f'  # {comment}'))}"


def stops(quick: bool = False) -> Iterator[Row]:
    """ranks that stop at a line"""
    n, count = (2, 2) if quick else (RANKS, STOPS)
    again, over = [], []
    with ddpnb.launch(n, quiet=True) as world:
        holding = world.hold(line_of("stopped"))
        run = world.run(walks, count + 2, stream=None)
        assert len(holding.wait(60).held) == n
        for _ in range(count):
            began = time.perf_counter()
            world.resume()
            held = holding.wait(30).held
            again.append(time.perf_counter() - began)
            assert len(held) == n
        holding.remove()
        for _ in range(count):
            began = time.perf_counter()
            held = world.step(how="over").held
            over.append(time.perf_counter() - began)
            if len(held) < n:
                break
        world.resume()
        run.wait(60)
    yield Row("lines", f"a line that {n} ranks hit: held and shown", tuple(again), goal=Goal(0.3, "median"))
    yield Row("lines", f"a step over a line, {n} ranks", tuple(over), goal=Goal(0.05, "median"))


def costs(quick: bool = False) -> Iterator[Row]:
    """what a hold costs where it does not stop"""
    rounds, count, times = (1, 3, 100) if quick else (8, 40, 20_000)
    with_hold, without, false, plain = [], [], [], []
    with ddpnb.launch(2, quiet=True) as world:

        def measured(target, *args):
            return world.run(target, *args, stream=None).wait(120).results[0]

        for _ in range(rounds):
            without.append(measured(steps, count, 0.01))
            plain.append(measured(passes, times) * 1e6)
            world.hold(f"{_HERE}:elsewhere()", when="number > 0")
            with_hold.append(measured(steps, count, 0.01))
            world.hold(line_of("held"), when="number < 0")
            false.append(measured(passes, times) * 1e6)
    yield Row(
        "lines", "a step of 10 ms, with a hold elsewhere", tuple(with_hold), peer="without", theirs=tuple(without),
        goal=Goal(1.01),
    )  # fmt: skip
    yield Row(
        "lines",
        "a condition that is false",
        tuple(false),
        "us",
        peer="without",
        theirs=tuple(plain),
        goal=Goal(5.0, "added"),
    )


if __name__ == "__main__":
    alone("lines", stops, costs)
