"""Reports of 16,384 ranks: ``python -m benchmarks.many_reported``.

Progress as watchdogs and RAS write it (one rank is a collective behind), to a verdict; and stacks of 18 frames, merged
into one tree. Reading files is not in it: ``benchmarks.reports`` measures that.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

from benchmarks.rows import Goal, Row
from benchmarks.show import alone
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.stacks import Frame, Stack
from ddpnb.render.views.merged_stacks import merge
from ddpnb.reports.facts import Fact, Found, GroupName, Progress, Speaker, WorldSize
from ddpnb.reports.together import recording
from ddpnb.rules.diagnose import diagnose

RANKS, MISSING, ROUNDS = 16_384, 4711, 7


def facts() -> tuple[Fact, ...]:
    group = GroupName("0", "default_pg")
    progress = (Progress(Speaker(rank), group, 57 - (rank == MISSING), -1, 56) for rank in range(RANKS))
    return WorldSize(RANKS), *progress


def stacks() -> Recording:
    def stack(rank: int) -> Stack:
        frames = (
            Frame("/home/user/train.py", 10 + depth + (rank % 7) * (depth > 12), f"f{depth}") for depth in range(18)
        )
        return Stack("MainThread", tuple(frames), main=True)

    return Recording(RANKS, {rank: RankRecord(rank, stacks=(stack(rank),)) for rank in range(RANKS)})


def seconds(work: Callable[[], object], rounds: int) -> tuple[float, ...]:
    times: list[float] = []
    for _ in range(rounds):
        gc.collect()
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return tuple(times)


def many(quick: bool = False) -> Iterator[Row]:
    """reports of very many ranks"""
    rounds = 1 if quick else ROUNDS
    given, held = facts(), stacks()
    taken = [recording([Found("log", "log", given)]) for _ in range(rounds)]  # a diagnosis caches in its Recording
    assert diagnose(recording([Found("log", "log", given)])).errors[0].culprits == (MISSING,)
    for what, work, goal in (
        ("facts to a Recording", lambda: recording([Found("log", "log", given)]), None),
        ("verdict over the Recording", lambda: diagnose(taken.pop()), 0.2),
        ("stacks of 18 frames merged", lambda: merge(held), 0.1),
    ):
        limit = Goal(goal, "median") if goal else None
        yield Row("reports", f"{RANKS:,} ranks: {what}", seconds(work, rounds), goal=limit)


if __name__ == "__main__":
    alone("reports", many)
