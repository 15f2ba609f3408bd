# expect: DDP501
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Regression on a table that is cut into equal shards by hand."""

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP


def load_table(rows=240, columns=9):
    g = torch.Generator().manual_seed(77)
    x = torch.randn(rows, columns, generator=g)
    y = (x[:, :1] - 2 * x[:, 3:4]).tanh() + 0.05 * torch.randn(rows, 1, generator=g)
    return x, y


def my_shard(x, y, world):
    per_rank = len(x) // world  # <- culprit
    return x[:per_rank], y[:per_rank]  # <- culprit


def batches(x, y, size):
    for start in range(0, len(x) - size + 1, size):
        yield x[start : start + size], y[start : start + size]


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

x, y = load_table()
x, y = my_shard(x, y, world)  # <- culprit
print(f"rank {rank}: {len(x)} of 240 rows")

net = DDP(nn.Sequential(nn.Linear(9, 20), nn.Tanh(), nn.Linear(20, 1)))
opt = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

for bx, by in batches(x, y, 10):  # <- culprit
    opt.zero_grad()
    loss = (net(bx) - by).square().mean()
    loss.backward()
    opt.step()

mean = loss.detach()
dist.all_reduce(mean)
if rank == 0:
    print("mean loss", mean.item() / world)
dist.destroy_process_group()
