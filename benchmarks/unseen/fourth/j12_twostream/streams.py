import torch
import torch.nn as nn


class TwoStream(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.rgb = nn.Sequential(nn.Linear(16, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.flow = nn.Sequential(nn.Linear(8, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.head = nn.Linear(2 * dim, 4)

    def forward(self, rgb, flow):
        return self.head(torch.cat([self.rgb(rgb).mean(1), self.flow(flow).mean(1)], -1))
