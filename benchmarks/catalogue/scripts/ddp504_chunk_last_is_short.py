# expect: DDP504
# also: DDP308
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""The tensor is cut with torch.chunk, one piece a rank; two epochs with a synchronised mean loss after each."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

generator = torch.Generator().manual_seed(30)
rows = 31 * world - 1
features = torch.randn(rows, 6, generator=generator)
targets = features.cumsum(1)[:, ::2]

features = features.chunk(world)[rank]  # <- culprit
targets = targets.chunk(world)[rank]  # <- culprit

model = DDP(nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3)))
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)


def one_epoch(batch_size=10):
    losses = []
    for x, y in zip(features.split(batch_size), targets.split(batch_size), strict=True):  # <- culprit
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


for epoch in range(2):
    losses = one_epoch()  # <- culprit
    gathered = [None] * world if rank == 0 else None
    dist.gather_object(losses, gathered, dst=0)  # <- culprit
    if rank == 0:
        print("epoch", epoch, "mean loss", sum(map(sum, gathered)) / sum(map(len, gathered)))

dist.destroy_process_group()
