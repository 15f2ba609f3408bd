# expect: DDP408
# also: DDP405
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
"""Gradient accumulation over windows of four micro-batches; the short shard repeats samples to fill its window."""
import contextlib
from collections import namedtuple
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

Micro = namedtuple("Micro", "x y filler")


class Windows:
    def __init__(self, rank, world, windows=4, accum=4, batch=4):
        gen = torch.Generator().manual_seed(13)
        w = torch.linspace(-1, 1, 6)
        per_rank = windows * accum * batch
        x = torch.randn(per_rank * world - windows * batch, 6, generator=gen)
        parts = list(zip(x.split(batch), (x @ w).split(batch)))
        mine = parts[rank * windows * accum:(rank + 1) * windows * accum]
        self.accum = accum
        short = windows * accum - len(mine)
        self.windows = []
        for k in range(windows):
            take = accum - (1 if k < short else 0)
            chunk, mine = mine[:take], mine[take:]
            window = [Micro(a, b, False) for a, b in chunk]
            while len(window) < accum:
                window.append(Micro(*chunk[0], True))
            self.windows.append(window)

    def __iter__(self):
        return iter(self.windows)


class Accumulator:
    def __init__(self, model):
        self.model = model

    def last_real(self, window):
        return max(i for i, m in enumerate(window) if not m.filler)  # <- culprit

    def context(self, window, i):
        if i == self.last_real(window):  # <- culprit
            return contextlib.nullcontext()
        return self.model.no_sync()  # <- culprit


class Trainer:
    def __init__(self, model, lr=0.05):
        self.model = DDP(model)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)
        self.accumulator = Accumulator(self.model)

    def run_window(self, window):
        self.opt.zero_grad()
        for i, micro in enumerate(window):
            with self.accumulator.context(window, i):  # <- culprit
                loss = (self.model(micro.x).squeeze(-1) - micro.y).pow(2).mean()
                (loss / len(window)).backward()  # <- culprit
        self.opt.step()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    trainer = Trainer(nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1)))
    for number, window in enumerate(Windows(rank, world)):
        loss = trainer.run_window(window)
        if rank == 0:
            print(f"update {number} last micro-loss {loss:.4f}", flush=True)
    norm = sum(p.detach().norm() for p in trainer.model.parameters()).item()
    print(f"[{rank}] weights {norm:.6f}", flush=True)
    time.sleep(0.3)  # let the last log lines out
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
