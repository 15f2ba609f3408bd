# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Synthetic data: the same weights from a common seed, then numbers of each rank's own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(42)
truth = torch.randn(15, 1)
model = DistributedDataParallel(nn.Linear(15, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

torch.manual_seed(42 + rank)
for step in range(20):
    x = torch.randn(32, 15)
    y = x @ truth + 0.1 * torch.randn(32, 1)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

mean = loss.detach() / world
dist.all_reduce(mean)
if rank == 0:
    print(f"mean loss {mean.item():.4f}", flush=True)
dist.destroy_process_group()
