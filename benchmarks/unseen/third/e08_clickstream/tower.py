import torch
from torch import nn


class TwoTower(nn.Module):
    def __init__(self, users=40, items=60, dim=12):
        super().__init__()
        self.user, self.item = nn.Embedding(users, dim), nn.Embedding(items, dim)
        self.mix = nn.Sequential(nn.Linear(2 * dim, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, user, item):
        return self.mix(torch.cat([self.user(user), self.item(item)], -1)).squeeze(-1)
