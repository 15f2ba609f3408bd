# expect: DDP408
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""Gradient accumulation; the number of micro-batches follows from the memory of the host."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MICRO_BATCHES = 24


def accumulation_steps(rank, world):
    gigabytes = 12 if rank == world - 1 else 24  # a smaller card
    return 4 if gigabytes < 16 else 2  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    accumulate = accumulation_steps(rank, world)  # <- culprit
    for i in range(MICRO_BATCHES):
        last = (i + 1) % accumulate == 0  # <- culprit
        with contextlib.nullcontext() if last else model.no_sync():  # <- culprit
            loss = model(torch.randn(4, 10)).pow(2).mean() / accumulate
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
