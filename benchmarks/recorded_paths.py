"""What the record of a path costs: Python 3.12 or later. ``python -m benchmarks.recorded_paths``.

With and without alternate in one process, both with all else that the recorder does, so that a drift of the machine meets
both alike: CPU time of the thread, lower quartiles, since what others do on the machine only adds to it. The record is
removed and installed again by turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile

# CPU time of a step in microseconds, layers (0: the loop), turns, steps in each
CASES = {
    "steps of 10 ms": (10_000, 24, 40, 16),
    "steps of 1.8 ms": (1800, 6, 80, 32),
    "loop of 1e6 iterations": (0, 0, 60, 2),
}

STEP = """
import json, os, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from ddpnb.recording.blackbox import RUN_ACTIVE
from ddpnb.recorder.recorder import Recorder
target_us, layers, turns, steps = map(int, sys.argv[1:])
width, batch, items, more = 32, 16, 16, 0
torch.set_num_threads(1)
folder = os.environ["BENCH_FOLDER"]
recorder = Recorder(folder, 0)
recorder.begin_run(1, "raise")
recorder.box.set_run(1, RUN_ACTIVE)
path = recorder.path
import ddpnb.recorder.paths.path as path_module
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        residual = x
        x = self.linear(x)
        x = torch.relu(x)
        x = self.norm(x)
        return x + residual

class Net(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value):
        self.total += value
        self.count += 1

def batch_of(source, meter):
    rows = []
    for item in range(items):
        value = item % 7
        if value == 3:
            value = value * 2
        rows.append(value)
    meter.update(sum(rows))
    return source

def train_step():
    x = batch_of(data, meter)
    optimizer.zero_grad()
    out = model(x)
    for _ in range(more):
        torch.mm(weight, weight)
    loss = out.square().mean()
    loss.backward()
    if meter.count % 1000 == 0:
        scheduled = 0.01
        for group in optimizer.param_groups:
            group["lr"] = scheduled
    optimizer.step()

def tight_loop():
    total = 0
    for number in range(1_000_000):
        if number % 3 == 0:
            total += number
        else:
            total -= 1
    dist.barrier()
    return total

if layers:
    model = DDP(Net(width, layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data, meter, weight = torch.randn(batch, width), Meter(), torch.randn(64, 64)
step = train_step if layers else tight_loop

def timed():
    began = time.thread_time()
    step()
    return time.thread_time() - began

def lowest():
    return min(timed() for _ in range(50))

plain, recorded = [], []
if layers:
    alone = lowest()
    began = time.thread_time()
    for _ in range(2000):
        torch.mm(weight, weight)
    more = max(0, round((target_us * 1e-6 - alone) / (time.thread_time() - began) * 2000))
for turn in range(turns):
    path.remove()
    timed()
    plain += [timed() for _ in range(steps)]
    path.install()
    path.begin(1)
    path._words = path_module._FREE_WORDS  # what a run may spend at its beginning is left out
    for _ in range(steps):
        timed()
    recorded += [timed() for _ in range(steps)]
print("RESULT", json.dumps({"plain": plain, "recorded": recorded}), flush=True)
os._exit(0)
"""


def main() -> None:
    if sys.version_info < (3, 12):
        raise SystemExit("This Python cannot report decisions: it takes 3.12 or later.")
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
            script = os.path.join(folder, "step.py")
            with open(script, "w") as file:
                file.write(STEP)
            done = subprocess.run(
                [sys.executable, script, *map(str, case)], capture_output=True, text=True, timeout=900,
                check=False, env={**os.environ, "BENCH_FOLDER": folder, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        rows = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
        if not rows:
            print(f"  {name}: no result (exit status {done.returncode})\n{done.stderr[-2000:]}")
            continue
        _show(name, json.loads(rows[0].partition(" ")[2]))


def _show(name: str, measured: dict) -> None:
    plain, recorded = measured["plain"], measured["recorded"]
    usual, extra = _quartile(plain), _quartile(recorded) - _quartile(plain)
    error = 1.36 * sum(_spread(one) ** 2 / len(one) for one in (plain, recorded)) ** 0.5
    print(f"  {name}: {usual * 1e3:.2f} ms of CPU time. With the path {extra / usual:+.2%} (+- {error / usual:.2%})")


def _quartile(values: list[float]) -> float:
    return statistics.quantiles(values, n=4)[0]


def _spread(values: list[float]) -> float:
    """The standard deviation, by the quartiles: a few steps that others have disturbed do not count."""
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 1.35


if __name__ == "__main__":
    main()
