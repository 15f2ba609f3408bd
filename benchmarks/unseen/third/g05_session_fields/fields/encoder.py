import torch
from torch import nn

BUCKETS, DIM = 64, 8


class FieldEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.Embedding(BUCKETS, DIM)
        self.norm = nn.LayerNorm(DIM)

    def forward(self, values):
        return self.norm(self.bag((values * 31) % BUCKETS))


class SessionModel(nn.Module):
    """One encoder per field, the coarse fields first; their codes are summed, so the head does not care."""

    def __init__(self, shard):
        super().__init__()
        self.encoders = nn.ModuleDict()
        for name in sorted(shard.columns, key=shard.cardinality):
            self.encoders[name] = FieldEncoder()
        self.head = nn.Sequential(nn.Linear(DIM, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, batch):
        code = sum(encoder(batch.columns[name]) for name, encoder in self.encoders.items())
        return self.head(code).squeeze(1)
