# expect: DDP311
# ranks: 2 4
# culprits: 1
# outcome: crash
# plain: R
"""Rank 1 runs on a small machine: the kernel takes it away when memory is short."""

import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class MemoryLimit:
    """What the kernel does on that machine."""

    def __init__(self, megabytes):
        self.left = megabytes

    def take(self, megabytes):
        self.left -= megabytes
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)  # <- culprit


def main():
    dist.init_process_group("gloo")
    machine = MemoryLimit(30 if dist.get_rank() == 1 else 8000)
    model = DDP(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    cache = []
    for step in range(10):
        x = torch.randn(8, 16)
        cache.append(x)
        machine.take(8)
        loss = nn.functional.cross_entropy(model(x), torch.randint(0, 4, (8,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
