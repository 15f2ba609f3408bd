"""What the time account costs: for the rank per step, for the observer per call.

Rounds with and without the hooks alternate in one process, so that a drift of the machine meets both
alike; what is printed are medians over rounds, and the median of the ratios of neighbouring rounds.
CPU time of the process is measured: what others do on the machine does not count.
"""

from __future__ import annotations

import gc
import os
import shutil
import statistics
import tempfile
import time

import torch
from torch.utils.data import DataLoader

from ddpnb.recorder.events.steps import Steps
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.calls import Call, CallState, Group, Signature, Site
from ddpnb.recording.marks import Mark
from ddpnb.recording.timing.account import Ledger

ROUNDS = 201


def a_step(size: int, layers: int, batch: int):
    """One step of a training, with a batch from a loader."""
    model = torch.nn.Sequential(*[torch.nn.Linear(size, size) for _ in range(layers)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(torch.randn(batch, size), batch_size=None, sampler=[slice(0, batch)] * 1_000_000)
    batches = iter(loader)

    def step() -> None:
        optimizer.zero_grad()
        model(next(batches)).square().mean().backward()
        optimizer.step()

    return step


def seconds(step, times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        step()
    return (time.process_time() - began) / times


def per_step(name: str, step, times: int, box: BlackBox) -> None:
    """Both ways, alternating; the hooks count no optimizer steps of their own when they are away."""
    plain, hooked, ratios = [], [], []
    seconds(step, 10 * times)
    for _ in range(ROUNDS):
        seconds(step, 2)  # what was just put in place or taken away is found again
        plain.append(seconds(step, times))
        steps = Steps(box)
        steps.install()
        seconds(step, 2)
        hooked.append(seconds(step, times))
        steps.remove()
        ratios.append(hooked[-1] / plain[-1])
    added = statistics.median(one - other for one, other in zip(hooked, plain, strict=True))
    print(
        f"  {name:<28}{statistics.median(plain) * 1e6:10.1f} us"
        f"   adds {added * 1e6:6.2f} us   x{statistics.median(ratios):.4f}"
    )


def hooks_alone(box: BlackBox) -> None:
    """The hooks around nothing: no training disturbs the measurement."""
    steps = Steps(box)
    backward, data = steps._backward(lambda: None), steps._data(lambda _: None)
    step = steps._step()

    def all_of_a_step() -> None:
        data(None)
        backward()
        step(None, (), {})

    print(f"  hooks around nothing: {min(seconds(all_of_a_step, 4000) for _ in range(21)) * 1e6:.2f} us a step")


def per_call(ranks: int, calls: int) -> None:
    group, signature, site = Group(tuple(range(ranks))), Signature("all_reduce"), Site("train.py", 57, "main")
    feeds = []
    for rank in range(ranks):
        made = [
            Call(n, group, n + 1, signature, site, CallState.COMPLETED, 1, entered_ns=1 + n * 10_000 + rank, done_ns=n * 10_000 + 5_000)
            for n in range(calls)
        ]  # fmt: skip
        marks = [Mark(n, "step", n * 10_000 + 9_000, 1, n * 2_000, n * 2_000, 0, n, 1) for n in range(calls)]
        feeds.append((made, marks))
    times = []
    for _ in range(7):
        gc.collect()
        ledger, began = Ledger(), time.process_time()
        for at in range(0, calls, 250):
            for rank, (made, marks) in enumerate(feeds):
                ledger.take(rank, made[at : at + 250], marks[at : at + 250])
        booked = time.process_time() - began
        ledger.account()
        times.append((booked, time.process_time() - began - booked))
    booked, asked = (statistics.median(column) for column in zip(*times, strict=True))
    print(
        f"  {ranks} ranks: {booked / ranks / calls * 1e6:.1f} us per call to book it, {asked * 1e3:.1f} ms for an account"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        box = BlackBox(os.path.join(folder, "rank0.box"), 0)
        print(f"a training step, CPU time, {ROUNDS} alternating rounds")
        per_step("1 x Linear(4), batch 1", a_step(4, 1, 1), 50, box)
        per_step("4 x Linear(512), batch 64", a_step(512, 4, 64), 4, box)
        hooks_alone(box)
        print("the watcher")
        per_call(4, 4000)
        per_call(64, 500)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
