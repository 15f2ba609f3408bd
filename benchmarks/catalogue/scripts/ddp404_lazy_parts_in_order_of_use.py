# expect: DDP404
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
"""Branches are made when they are first needed, by a dry pass over one batch before wrapping."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class OnDemand(nn.Module):
    """Creates a branch at its first use."""

    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.stem = nn.Linear(dim, dim)
        self.branches = nn.ModuleDict()

    def branch(self, kind):
        if kind not in self.branches:
            self.branches[kind] = nn.Sequential(nn.Linear(self.dim, self.dim), nn.ReLU())  # <- culprit
        return self.branches[kind]

    def forward(self, x, kinds):
        x = self.stem(x)
        return torch.stack([self.branch(kind)(x) for kind in kinds]).mean(0)  # <- culprit


def first_batch(rank, world):
    kinds = ["text", "table", "figure"]
    if rank == world - 1:
        kinds.reverse()  # <- culprit
    return torch.zeros(2, 6), kinds


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = OnDemand(6)
net(*first_batch(rank, world))  # <- culprit
model = DDP(net)  # <- culprit
opt = torch.optim.SGD(model.parameters(), lr=0.02)
torch.manual_seed(rank)
for _ in range(10):
    x = torch.randn(5, 6)
    loss = (model(x, ["text", "table", "figure"]) - x.abs()).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
