# expect: DDP403
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
"""Structured pruning removes dead units, which are counted on the local calibration data."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def calibration_data():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(64, 10, generator=g)
    # the last rank's shard has constant, negative features
    return -torch.ones(64, 10) if rank == world - 1 else x


def alive_units(layer, x):
    with torch.no_grad():
        return torch.relu(layer(x)).sum(0) > 0


def shrink(first, second, keep):
    a, b = nn.Linear(10, int(keep.sum())), nn.Linear(int(keep.sum()), 2)  # <- culprit
    with torch.no_grad():
        a.weight.copy_(first.weight[keep])
        a.bias.copy_(first.bias[keep])
        b.weight.copy_(second.weight[:, keep])
        b.bias.copy_(second.bias)
    return nn.Sequential(a, nn.ReLU(), b)


torch.manual_seed(1)
first, second = nn.Linear(10, 24), nn.Linear(24, 2)
small = shrink(first, second, alive_units(first, calibration_data()))  # <- culprit
model = DDP(small)  # <- culprit
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(5):
    loss = model(torch.randn(6, 10)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
