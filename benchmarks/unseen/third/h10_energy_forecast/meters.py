"""Synthetic hourly loads; now and then a meter reports in the wrong unit."""
import math

import torch
from torch.utils.data import Dataset


class MeterReadings(Dataset):
    def __init__(self, n, seed, glitches=(), hours=24):
        g = torch.Generator().manual_seed(seed)
        phase = torch.rand(n, 1, generator=g) * 2 * math.pi
        clock = torch.arange(2 * hours)[None] * (2 * math.pi / hours)
        load = torch.sin(clock + phase) + 0.2 * torch.randn(n, 2 * hours, generator=g)
        load[list(glitches)] *= 25.0
        temperature = torch.cos(clock[:, :hours] + phase) + 0.1 * torch.randn(n, hours, generator=g)
        self.history = torch.stack([load[:, :hours], temperature], dim=-1)
        self.target = load[:, hours:]

    def __len__(self):
        return len(self.target)

    def __getitem__(self, index):
        return self.history[index], self.target[index]
