import torch
import torch.nn as nn


class EnergyNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.kind = nn.Embedding(6, width)
        self.pos = nn.Linear(3, width)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.out = nn.Linear(width, 1)

    def forward(self, xyz, kind, owner, n_mol):
        h = self.body(self.pos(xyz) + self.kind(kind))
        atom = self.out(h).squeeze(-1)
        return torch.zeros(n_mol).index_add(0, owner, atom)
