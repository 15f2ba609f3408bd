"""Synthetic annotated pages; every page has six regions."""
import torch
from torch.utils.data import Dataset

REGIONS = 6


class Pages(Dataset):
    def __init__(self, n=192, in_dim=24, seed=324):
        g = torch.Generator().manual_seed(seed)
        self.regions = torch.randn(n, REGIONS, in_dim, generator=g)
        self.kind = torch.randint(0, 5, (n, REGIONS), generator=g)
        w = torch.randn(in_dim, 6, generator=g)
        y = torch.tanh(self.regions @ w)
        self.box, self.grid = y[..., :4], y[..., 4:]

    def __len__(self):
        return len(self.regions)

    def __getitem__(self, i):
        return self.regions[i], self.kind[i], self.box[i], self.grid[i]


def collate(items):
    regions, kind, box, grid = (torch.cat(x) for x in zip(*items))
    return {"regions": regions, "target": {"kind": kind, "box": box, "grid": grid}}
