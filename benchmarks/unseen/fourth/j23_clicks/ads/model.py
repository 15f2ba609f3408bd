import torch
import torch.nn as nn


class CTRNet(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(100, dim) for _ in range(5))
        self.top = nn.Sequential(nn.Linear(5 * dim + 4, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, fields, dense):
        parts = [table(fields[:, i]) for i, table in enumerate(self.tables)]
        return self.top(torch.cat(parts + [dense], 1)).squeeze(-1)
