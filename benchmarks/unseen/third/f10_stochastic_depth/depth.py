"""Residual tower with stochastic depth."""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mix = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.mix(self.norm(x))


class Tower(nn.Module):
    def __init__(self, inp, dim, depth, classes, drop=0.35, seed=77):
        super().__init__()
        self.stem = nn.Linear(inp, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, classes)
        self.drop = drop
        self.coin = torch.Generator().manual_seed(seed)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            if self.training and torch.rand((), generator=self.coin).item() < self.drop:
                continue
            x = block(x)
        return self.head(x)
