"""Reports of 16,384 ranks: ``python -m benchmarks.many_reported``.

Progress as watchdogs and RAS write it (one rank is a collective behind), to a verdict; and stacks of 18 frames, merged
into one tree. Reading files is not in it: ``benchmarks.reports`` measures that.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

from ddpnb.diagnosis.diagnose import diagnose
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.model.stacks import Frame, Stack
from ddpnb.reports.facts import Fact, Found, GroupName, Progress, Speaker, WorldSize
from ddpnb.reports.together import recording
from ddpnb.views.merged_stacks import merge

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


def median(work: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(ROUNDS):
        gc.collect()
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    given, held = facts(), stacks()
    taken = [recording([Found("log", "log", given)]) for _ in range(ROUNDS)]  # a diagnosis caches in its Recording
    assert diagnose(recording([Found("log", "log", given)])).errors[0].culprits == (MISSING,)
    print(f"{RANKS} ranks, medians of {ROUNDS}")
    print(f"facts to a Recording       {median(lambda: recording([Found('log', 'log', given)])):.3f} s")
    print(f"verdict over the Recording {median(lambda: diagnose(taken.pop())):.3f} s")
    print(f"stacks merged              {median(lambda: merge(held)):.3f} s")


if __name__ == "__main__":
    main()
