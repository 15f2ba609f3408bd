# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Lazy layers learn their sizes from a batch of ones, the same on all ranks; training then uses each rank's rows."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def rows(rank, world, count=96, columns=11):
    table = torch.randn(count, columns, generator=torch.Generator().manual_seed(6))
    return table[rank::world]


def build(columns):
    model = nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(1))
    with torch.no_grad():
        model(torch.ones(1, columns))
    return DDP(model)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mine = rows(rank, world)
model = build(mine.shape[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

model(torch.ones(2, mine.shape[1])).sum().backward()  # touch the buckets once
optimizer.zero_grad()

for epoch in range(2):
    order = torch.randperm(len(mine), generator=torch.Generator().manual_seed(1000 * rank + epoch))
    for batch in mine[order].split(6):
        loss = nn.functional.mse_loss(model(batch), batch.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"rank {rank}: loss {loss.item():.3f}", flush=True)
dist.destroy_process_group()
