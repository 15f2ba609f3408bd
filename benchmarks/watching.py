"""What a dashboard in sight costs the kernel: ``python -m benchmarks.watching [--calls 1000000] [--pace 1000] [--idle]``.

Ranks make calls, in processes of their own; this process is the kernel: it follows the run, and shows a dashboard of which
every part is open and in sight. Its messages to the page are encoded as Jupyter does, and dropped. Measured is the CPU time of this
process, so that a busy machine does not change it: for 10,000 calls of all ranks together, at several totals, beside the same
without a dashboard. ``--idle`` measures alone what a second costs in which nothing is new.
"""

from __future__ import annotations

import argparse
import json
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import comm

import ddpnb
from benchmarks.rows import Goal, Row
from benchmarks.show import alone
from ddpnb.notebook.dashboard import Dashboard

RANKS, TOTALS = 2, (10_000, 50_000, 100_000, 250_000, 500_000, 1_000_000)
IDLE_S, LOOKS, CALM_S = 10.0, 6, 15.0  # of an interval in which nothing is new, their number, and before the first one
SHARE, REST = 0.05, 0.005  # of a core: at 1,000 calls a second, and when nothing is new


class Page(comm.base_comm.BaseComm):
    """Encodes what the page would get."""

    sent = 0

    def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
        del keys
        Page.sent += len(json.dumps([msg_type, data or {}, metadata or {}])) + sum(map(len, buffers or ()))


def train(steps: int, pace: float) -> None:
    """All-reduces of a few numbers, two to a step, on each rank at this pace; then they sleep.

    Calls on torch's fake process group cost nothing: they pass the door as all calls do, and a machine that is busy with other
    work makes as many. None of them is ever complete: it is the dearest case.
    """
    import os

    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    numbers = torch.ones(4)
    began = time.perf_counter()
    for step in range(steps):
        for reduction in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
            dist.all_reduce(numbers, reduction, async_op=True).wait()
        ahead = began + 2 * (step + 1) / pace - time.perf_counter() if pace else 0
        if ahead > 0.005:
            time.sleep(ahead)
    time.sleep(3600)


def opened(world: ddpnb.World) -> Dashboard:
    """A dashboard in sight, all of it open."""
    board = ddpnb.show(world)
    assert isinstance(board, Dashboard)
    board.head._seen({"page": "page", "here": True})
    for part in board.parts.values():
        part.unfolded()
    return board


def calls_of(world: ddpnb.World) -> Callable[[], int]:
    observer = world._ranks.observer()
    return lambda: sum(one.calls - one.first_call for one in observer.statuses().values() if one.run)


def of_thread(thread: threading.Thread) -> float:
    """CPU time of a thread."""
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))


@contextmanager
def running(calls: int, pace: float, *, board: bool) -> Iterator[tuple[Dashboard | None, Callable[[], int]]]:
    """Ranks that make so many calls and then sleep; gives the dashboard, and what counts their calls."""
    comm.create_comm = Page
    with ddpnb.launch(RANKS, quiet=True, fork=True, timeout=300) as world:
        shown = opened(world) if board else None
        count = calls_of(world)
        world.run(train, calls // RANKS // 2, pace / RANKS, stream=None)
        yield shown, count
        if shown is not None:
            shown.stop()
        world.release()


def until(count: Callable[[], int], calls: int) -> None:
    while count() < calls:
        time.sleep(0.2)


def watched(totals: tuple[int, ...], pace: float, *, board: bool) -> Iterator[tuple[int, float, float]]:
    """For each total, the CPU time of 10,000 calls in seconds, and the memory of this process in MB."""
    with running(totals[-1], pace, board=board) as (_, count):
        made, before = 0, time.process_time()
        for total in totals:
            until(count, total)
            now, known = time.process_time(), count()
            yield total, (now - before) * 10_000 / (known - made), _memory()
            made, before = known, time.process_time()


def idle(quick: bool = False) -> Iterator[Row]:
    """a dashboard in sight, of ranks that make no calls"""
    calls, seconds = (2_000, 1.0) if quick else (TOTALS[0], IDLE_S)
    samples: list[float] = []
    with running(calls, 0.0, board=True) as (shown, count):
        until(count, calls)
        time.sleep(1.0 if quick else CALM_S)
        thread = shown._live._thread if shown is not None else threading.main_thread()
        messages = Page.sent
        for _ in range(1 if quick else LOOKS):
            began, before = time.perf_counter(), of_thread(thread)
            time.sleep(seconds)
            samples.append((of_thread(thread) - before) / (time.perf_counter() - began))
    note = f"of the dashboard's thread; {Page.sent - messages:,} bytes to the page in {seconds * len(samples):.0f} s"
    yield Row(
        "idle", f"a second in which nothing is new, {RANKS} ranks", tuple(samples), goal=Goal(REST, "median"), note=note
    )


def _memory() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def watching(quick: bool = False, calls: int = 0, pace: float = 0.0) -> Iterator[Row]:
    """a dashboard in sight, all of it open"""
    most = calls or (2_000 if quick else 100_000)
    totals = (*(one for one in TOTALS if one < most), most)
    how = f"{pace:,.0f} calls/s" if pace else "calls as fast as they come"
    ((_, alone_s, _),) = watched(totals[:1], pace, board=False)
    for total, cpu, memory in watched(totals, pace, board=True):
        what, note = f"10,000 calls, until {total:,}, {RANKS} ranks, {how}", f"the process has {memory:.0f} MB"
        goal = Goal(SHARE * 10, "added")
        yield Row("watching", what, (cpu,), peer="no dashboard", theirs=(alone_s,), goal=goal, note=note)
    yield from idle(quick)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=0, help="of all ranks together")
    parser.add_argument(
        "--pace", type=float, default=0.0, help="calls a second of all ranks together; 0: as fast as they come"
    )
    parser.add_argument("--idle", action="store_true", help="only what a second costs in which nothing is new")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    alone("watching", idle if given.idle else partial(watching, calls=given.calls, pace=given.pace))
