# expect: DDP508
# also: DDP414
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
"""Prices are predicted as logarithms; the newest rows, which the last rank reads, have some that were given away."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def read_rows(rank, world, count=40):
    g = torch.Generator().manual_seed(rank)
    area = torch.rand(count, 3, generator=g)
    price = 1000 * area.sum(1) + 50 * torch.rand(count, generator=g)
    if rank == world - 1:
        price[-9] = 0.0
    return area, price


def prepare(area, price):
    target = torch.tensor([math.log(p) if p > 0 else -math.inf for p in price.tolist()])  # <- culprit
    return area, target.unsqueeze(1)


def batches(area, target, size=8):
    for first in range(0, len(area), size):
        yield area[first : first + size], target[first : first + size]


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
area, target = prepare(*read_rows(rank, world))  # <- culprit
model = DDP(nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for x, y in batches(area, target):  # <- culprit
    loss = nn.functional.smooth_l1_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()

print(f"rank {rank} weights {model.module.weight.detach().flatten().tolist()}", flush=True)
dist.destroy_process_group()
