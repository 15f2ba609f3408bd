# expect: DDP308
# also: DDP605
# ranks: 2 4
# culprits: 1
# outcome: hang
# plain: R
"""Resume where the last run was interrupted, if this machine kept its state."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def saved_step(rank):
    """Only one local disk survived the restart."""
    disks = {1: {"step": 3}}
    return disks.get(rank, {"step": 0})["step"]


def batch(step):
    gen = torch.Generator().manual_seed(step)
    return torch.randn(6, 4, generator=gen)


dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
start = saved_step(rank)  # <- culprit
for step in range(start, 8):  # <- culprit
    x = batch(step)
    opt.zero_grad()
    nn.functional.mse_loss(model(x), x).backward()
    opt.step()
print(f"rank {rank}: steps {start} to {step}")
