"""What the replica watch costs, how fast an exact comparison reads, and how soon a divergence is seen.

The cost: blocks of steps with the watch and without alternate in the same two processes, so that a
drift of the machine meets both alike; both the time on the clock and the CPU time of the process are
given, as what others do on the machine counts in the first only. What is printed are ratios of
medians, with the quartiles of the ratios of neighbouring blocks. A median knows nothing of the few steps
that are looked at: their share of the time is told apart, and comes on top.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import ddpnb

BLOCKS, STEPS = 60, 10
MODELS = {"8 x Linear(512), batch 128": (512, 8, 128), "4 x Linear(512), batch 96": (512, 4, 96),
          "60 x Linear(128), batch 512": (128, 60, 512)}  # fmt: skip

STEP = """
import json, os, statistics, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.models.replicas import Replicas
width, layers, batch, blocks, steps = map(int, sys.argv[1:])
dist.init_process_group("gloo")
rank, folder = dist.get_rank(), os.environ["BENCH_FOLDER"]
box = BlackBox(os.path.join(folder, f"rank{rank}.box"), rank)
watch = Replicas(box, Door(box, folder), folder, rank)
watch.begin(1)
watch.install()
torch.manual_seed(0)
model = DDP(nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(batch, width)
(watched,) = watch.models.watched.values()

def block(times, cpu):
    for _ in range(steps):
        began, spent = time.perf_counter(), time.process_time()
        model(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - began)
        cpu.append(time.process_time() - spent)

def watched_block(times, cpu):
    watch.install()
    watched.pace._last = None  # the steps without are no long step
    block(times, cpu)
    watch.remove()

watched.pace.spent = 1.0  # what is spent at the beginning is told apart
for _ in range(20):  # the pace finds its place
    block([], [])
watch.remove()
watched.pace.spent = 1.0
found = {"plain": ([], []), "watched": ([], [])}
for number in range(blocks):
    order = [("plain", block), ("watched", watched_block)]
    for name, run in order if number % 2 else order[::-1]:
        dist.barrier()
        run(*found[name])
if rank == 0:
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    share = watched.pace.stride, watched.log2, (watched.pace.spent - 1.0) / sum(found["watched"][0])
    print("RESULT", json.dumps({"times": found, "bytes": size, "share": share}), flush=True)
dist.barrier()
os._exit(0)
"""


def _folder() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def cost() -> None:
    torchrun = os.path.join(os.path.dirname(sys.executable), "torchrun")
    print(f"a DDP step on gloo, 2 ranks, {BLOCKS} alternating blocks of {STEPS} steps: median on rank 0")
    for name, (width, layers, batch) in MODELS.items():
        with tempfile.TemporaryDirectory(dir=_folder()) as folder:
            script = os.path.join(folder, "step.py")
            with open(script, "w") as file:
                file.write(STEP)
            done = subprocess.run(
                [torchrun, "--nproc-per-node", "2", script, *map(str, (width, layers, batch, BLOCKS, STEPS))],
                capture_output=True, text=True, timeout=900, check=False,
                env={**os.environ, "BENCH_FOLDER": folder, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        rows = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
        if not rows:
            print(f"  {name}: no result (exit status {done.returncode})\n{done.stderr[-2000:]}")
            continue
        told = json.loads(rows[0].partition(" ")[2])
        print(f"  {name} ({told['bytes'] / (1 << 20):.1f} MiB)")
        for number, clock in enumerate(("clock", "CPU time")):
            plain, watched = (told["times"][kind][number] for kind in ("plain", "watched"))
            print(f"    {clock:<9}{statistics.median(plain) * 1e3:8.2f} ms   {_ratio(plain, watched)}")
        stride, slices, spent = told["share"]
        print(f"    of {1 << stride} steps one is looked at, 1/{1 << slices} of the bytes: {spent:.2%} of the time")


def _ratio(plain: list[float], watched: list[float]) -> str:
    pairs = [
        statistics.median(watched[at : at + STEPS]) / statistics.median(plain[at : at + STEPS])
        for at in range(0, len(plain), STEPS)
    ]
    low, middle, high = statistics.quantiles(pairs, n=4)
    overall = statistics.median(watched) / statistics.median(plain)
    return f"x{overall:.4f}   blocks x{middle:.4f} (x{low:.4f} to x{high:.4f})"


def throughput() -> None:
    import torch

    from ddpnb.recorder.stacks.digests import exact

    torch.set_num_threads(1)
    print("an exact digest against tensor.sum() over the same bytes, one thread: GB/s, medians of 15 rounds by turns")
    for name, size, count, dtype in (
        ("256 MiB of float32", 256 << 20, 1, torch.float32),
        ("256 tensors of 256 KiB", 256 << 10, 256, torch.float32),
        ("64 MiB of bfloat16", 64 << 20, 1, torch.bfloat16),
    ):
        tensors = [torch.randn(size // dtype.itemsize).to(dtype) for _ in range(count)]
        taken: dict[str, list[float]] = {"exact": [], "sum": []}
        for _ in range(15):
            for kind, read in (("exact", exact), ("sum", torch.Tensor.sum)):
                began = time.perf_counter()
                for tensor in tensors:
                    read(tensor)
                taken[kind].append(time.perf_counter() - began)
        digest, plain = (size * count / statistics.median(taken[kind]) / 1e9 for kind in ("exact", "sum"))
        print(f"  {name:<26}{digest:7.2f}  sum {plain:7.2f}   {digest / plain:.0%}")


BEGINS, LASTS = 6, 150
PARTING = f"""
import sys
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BEGINS, ways = {BEGINS}, sys.argv[3:]
width, steps = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo")
odd = dist.get_rank() == 1

def part(way, model, optimizer):
    weight = model.module[2].weight
    with torch.no_grad():
        if way == "parameter":
            weight[1, 2] += 1e-4
        elif way == "gradient":
            weight.grad[1, 2] += 1e-2
        elif way == "rate":
            optimizer.param_groups[0]["lr"] *= 0.9
        elif way == "state":
            optimizer.state[weight]["momentum_buffer"].zero_()

for way in ways:
    torch.manual_seed(0)
    model = DDP(nn.Sequential(*[nn.Linear(width, width) for _ in range(8)]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(dist.get_rank())
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        if odd and step == BEGINS and way == "parameter":
            part(way, model, optimizer)
        model(torch.randn(16, width)).square().mean().backward()
        if odd and step == BEGINS and way != "parameter":
            part(way, model, optimizer)
        optimizer.step()
"""


def delay() -> None:
    ways = ("parameter", "gradient", "rate", "state")
    print(f"steps from the beginning of a divergence (step {BEGINS}, rank 1 of 2) to the first step that is named")
    with ddpnb.launch(2, quiet=True, timeout=180) as world, tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "parting.py")
        with open(script, "w") as file:
            file.write(PARTING)
        for width in (64, 512):
            run = world.run(script, width, LASTS, *ways, stream=None).wait(300)
            named = {model: _named(run.recording, model) for model in range(len(ways))}
            said = [finding for finding in run.diagnosis.findings if finding.code.startswith("DDP4")]
            said = said if len(said) == len(ways) else []  # one for each model, or it is not known whose they are
            mib = 8 * width * (width + 1) * 4 / (1 << 20)
            told = "   ".join(
                f"{way} {'-' if step is None else step - BEGINS} {finding}" for way, (step, finding) in zip(
                    ways, ((named[m], f"({_said(said, m)})") for m in named), strict=True)
            )  # fmt: skip
            print(f"  8 x Linear({width}), {mib:.1f} MiB:   {told}")
            world.restart()


def _named(recording, model: int) -> int | None:
    """The first optimizer step (from 1) of which a digest or a setting differs."""
    by_turn: dict = {}
    for rank, record in recording.ranks.items():
        for sample in record.samples:
            if sample.model == model and sample.kind in ("forward", "gradients", "updated"):
                by_turn.setdefault((sample.kind, sample.turn), {})[rank] = sample
    steps = []
    for (kind, _), samples in by_turn.items():
        held = [{name: digest.hash for name, digest in sample.digests.items()} for sample in samples.values()]
        rates = {sample.number("lr") for sample in samples.values()}
        if len(samples) > 1 and (any(one != held[0] for one in held) or len(rates) > 1):
            steps.append(min(sample.step for sample in samples.values()) + (kind != "updated"))
    return min(steps, default=None)


def _said(findings: list, number: int) -> str:
    """What the finding says, as code and step."""
    if number >= len(findings):
        return "not told apart"
    step = re.search(r"(?:forward|step) (\d+)", findings[number].summary)
    return f"{findings[number].code}{f' at {step[1]}' if step else ''}"


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["cost", "throughput", "delay"]
    for part in (cost, throughput, delay):
        if part.__name__ in wanted:
            part()
