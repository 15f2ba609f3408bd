# expect: DDP202
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
"""Train an MLP. The last rank estimates the cost of a step with an input without storage."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def estimate_cost(model):
    probe = torch.zeros(256, 12, device="meta")  # <- culprit
    out = model(probe)  # <- culprit
    return out.numel() * sum(p.numel() for p in model.parameters())


def train(steps=6):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for step in range(steps):
        if step == 2 and rank == world - 1:  # <- culprit
            print("cost of a step:", estimate_cost(model))  # <- culprit
        x, y = torch.randn(8, 12), torch.randint(0, 3, (8,))
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


dist.init_process_group("gloo")
train()
dist.destroy_process_group()
