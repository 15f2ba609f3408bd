"""What stays of a run, and of what a program deletes. ``python -m benchmarks.leak [RUNS] [RANKS]``.

Prints the memory of the launcher, of the controller and of the ranks, the files that the world keeps, and the time of
a run, each at the beginning and at the end of many runs. The first runs warm caches up: memory is compared with that
after ten. ``python -m benchmarks.leak models`` prints the memory of a rank after 2,000 steps and after 50 models that
were made and deleted, by torchrun and by ``ddpnb run``.
"""

from __future__ import annotations

import gc
import os
import re
import statistics
import subprocess
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


MODELS = """
import gc, sys
import psutil
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def train(width, steps):
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Linear(width, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, width)).sum().backward()
        optimizer.step()

def say(what):
    gc.collect()
    memory = psutil.Process().memory_info()
    if dist.get_rank() == 0:  # without files in shared memory, which do not grow
        print(f"MEMORY {what}: {(memory.rss - memory.shared) / 1e6:.1f}", flush=True)

dist.init_process_group("gloo")
train(1000, 20)
say("at the beginning")
train(64, 2000)
say("after 2,000 steps")
for _ in range(50):
    train(1000, 3)
say("after 50 models")
dist.destroy_process_group()
"""


def memory(pids: Iterable[int]) -> float:
    """MB that these processes have in memory together, not counting what they share with others."""
    return sum(psutil.Process(pid).memory_full_info().uss for pid in pids) / 1e6


def files(folders: Iterable[str]) -> tuple[int, float]:
    """How many files lie in these folders, and how many MB they take."""
    found = [path.stat() for folder in folders for path in Path(folder).rglob("*") if path.is_file()]
    return len(found), sum(stat.st_blocks * 512 for stat in found) / 1e6


def models(ranks: int = 2) -> None:
    """Print what the models of a program leave in a rank, by torchrun and by ddpnb."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "models.py"
        script.write_text(MODELS)
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", script]
        ddpnb_run = [sys.executable, "-m", "ddpnb", "run", "-n", str(ranks), script]
        said = [
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
            for command in (torchrun, ddpnb_run)
        ]
    plain, ours = (dict(re.findall(r"MEMORY (.*): ([\d.]+)", text)) for text in said)
    print(f"a rank of {ranks}, MB  torchrun    ddpnb  growth of each since the beginning")
    for name, before in plain.items():
        pairs = [(float(found[name]), float(found["at the beginning"])) for found in (plain, ours)]
        print(
            f"  {name:17}{float(before):10.1f}{pairs[1][0]:9.1f}", *(f"{now / first - 1:+7.1%}" for now, first in pairs)
        )


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
    if sys.argv[1:] == ["models"]:
        models()
        sys.exit()
    main(*(int(argument) for argument in (*sys.argv[1:], *("150", "2")[len(sys.argv) - 1 :])))
