import torch
from torch import nn


class ClickModel(nn.Module):
    def __init__(self, items, dim):
        super().__init__()
        self.table = nn.Embedding(items, dim)
        self.tower = nn.Sequential(nn.Linear(dim + 4, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, items, context):
        return self.tower(torch.cat([self.table(items), context], 1)).squeeze(1)
