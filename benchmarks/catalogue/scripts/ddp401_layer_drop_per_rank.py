# expect: DDP401
# ranks: 2 4
# culprits: any
# outcome: crash
# plain: E
"""Stochastic depth: a residual block is left out now and then."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.lin = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.nn.functional.gelu(self.lin(self.norm(x)))


class Deep(nn.Module):
    def __init__(self, dim=16, depth=6, drop=0.3):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.drop = drop
        self.out = nn.Linear(dim, 2)

    def forward(self, x):
        for block in self.blocks:
            if self.training and random.random() < self.drop:  # <- culprit
                continue  # <- culprit
            x = block(x)
        return self.out(x)


def setup():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    random.seed(1234 + dist.get_rank())


def run():
    model = DDP(Deep())  # <- culprit
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(12):
        x, y = torch.randn(4, 16), torch.randint(0, 2, (4,))
        out = model(x)  # <- culprit
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    setup()
    run()
    dist.destroy_process_group()
