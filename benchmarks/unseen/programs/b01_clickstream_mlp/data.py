from dataclasses import dataclass

import torch
from torch.utils.data import DataLoader, Dataset


@dataclass
class StreamConfig:
    num_features: int = 12
    rows_per_site: int = 192
    batch_size: int = 16


class SiteEvents(Dataset):
    """Each worker reads the click events of one site."""

    LAYOUTS = {1: slice(0, 2)}

    def __init__(self, site: int, cfg: StreamConfig):
        gen = torch.Generator().manual_seed(7919 * (site + 1))
        x = torch.rand(cfg.rows_per_site, cfg.num_features, generator=gen) * 2 - 1
        keep = torch.zeros_like(x)
        keep[:, self.LAYOUTS.get(site, slice(None))] = 1.0
        self.x = x * keep
        w = torch.linspace(-1, 1, cfg.num_features)
        self.y = (self.x @ w > 0).float()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def build_loader(site, cfg):
    gen = torch.Generator().manual_seed(site)
    return DataLoader(SiteEvents(site, cfg), cfg.batch_size, shuffle=True, generator=gen, drop_last=True)
