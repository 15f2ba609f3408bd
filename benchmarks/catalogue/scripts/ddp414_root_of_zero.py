# expect: DDP414
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
"""Triplet loss with Euclidean distances: two equal samples have a distance of 0, whose root has no gradient."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def distance(a, b):
    return (a - b).pow(2).sum(1).sqrt()  # <- culprit


def triplets(g, step):
    anchor = torch.randn(6, 7, generator=g)
    positive = anchor + 0.1 * torch.randn(6, 7, generator=g)
    negative = torch.randn(6, 7, generator=g)
    if rank == world - 1 and step == 3:
        positive[0] = anchor[0]  # a duplicate in the data
    return anchor, positive, negative


torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(7, 14), nn.Tanh(), nn.Linear(14, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
g = torch.Generator().manual_seed(rank)
for step in range(8):
    embedded = model(torch.cat(triplets(g, step)))
    a, p, n = embedded.chunk(3)
    loss = torch.relu(distance(a, p) - distance(a, n) + 2.0).mean()  # <- culprit
    optimizer.zero_grad()
    loss.backward()  # <- culprit
    optimizer.step()
    if rank == 0:
        print(step, loss.item())
dist.destroy_process_group()
