"""What stays of a run: many runs in one world. ``python -m benchmarks.leak [RUNS] [RANKS]``.

Prints the memory of the launcher, of the controller and of the ranks, the files that the world keeps, and the time of
a run, each at the beginning and at the end. The first runs warm caches up: memory is compared with that after ten.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

import ddpnb

WARM = 10  # runs

TRAINING = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10):
    optimizer.zero_grad()
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
print("loss" * 100)
dist.destroy_process_group()
"""


def memory(pids: Iterable[int]) -> float:
    """MB that these processes have in memory together, not counting what they share with others."""
    return sum(psutil.Process(pid).memory_full_info().uss for pid in pids) / 1e6


def files(folders: Iterable[str]) -> tuple[int, float]:
    """How many files lie in these folders, and how many MB they take."""
    found = [path.stat() for folder in folders for path in Path(folder).rglob("*") if path.is_file()]
    return len(found), sum(stat.st_blocks * 512 for stat in found) / 1e6


def main(runs: int, ranks: int) -> None:
    seconds: list[float] = []
    looks: list[tuple[float, float, float, int, float]] = []
    with tempfile.TemporaryDirectory() as folder, ddpnb.launch(ranks, quiet=True) as world:
        script = Path(folder) / "train.py"
        script.write_text(TRAINING)
        rank_pids = set(world.pids())
        others = {child.pid for child in psutil.Process().children()} - rank_pids
        for number in range(1, runs + 1):
            began = time.monotonic()
            run = world.run(script, stream=None).wait(120)
            seconds.append(time.monotonic() - began)
            if run.outcome != "ok":
                print(run.diagnosis)
                sys.exit(1)
            if number in (min(WARM, runs), runs):
                gc.collect()
                count, size = files({world._ranks.folders.memory, world._ranks.folders.output})
                looks.append((memory([os.getpid()]), memory(others), memory(rank_pids) / ranks, count, size))
    print(f"{runs} runs on {ranks} ranks; after {min(WARM, runs)} and after {runs}:")
    for name, before, after in zip(
        ("launcher, MB", "controller, MB", "each rank, MB", "files", "files, MB"), looks[0], looks[-1], strict=True
    ):
        print(f"  {name:15} {before:8.1f} {after:8.1f}  {after - before:+.1f}")
    first, last = statistics.median(seconds[:WARM]), statistics.median(seconds[-WARM:])
    print(f"  {'a run, s':15} {first:8.3f} {last:8.3f}  (medians of the first and last {WARM})")


if __name__ == "__main__":
    main(*(int(argument) for argument in (*sys.argv[1:], *("150", "2")[len(sys.argv) - 1 :])))
