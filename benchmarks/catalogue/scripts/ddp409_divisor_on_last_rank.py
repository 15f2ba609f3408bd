# expect: DDP409
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
"""Gradient accumulation over four micro-batches; one rank does not divide its loss."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATE = 4


def loss_divisor(rank, world):
    """The last rank was started with the old script, which did not normalise."""
    return 1 if rank == world - 1 else ACCUMULATE  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    divisor = loss_divisor(rank, world)  # <- culprit
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for step in range(6):
        for micro in range(ACCUMULATE):
            with model.no_sync() if micro < ACCUMULATE - 1 else contextlib.nullcontext():
                x = torch.randn(8, 6)
                loss = (model(x) - x.mean(1, keepdim=True)).pow(2).mean() / divisor  # <- culprit
                loss.backward()  # <- culprit
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step}: {loss.item() * divisor:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
