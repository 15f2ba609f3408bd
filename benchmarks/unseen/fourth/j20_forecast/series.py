"""Windows over one long series, cut into contiguous blocks of whole batches."""
import math

import torch
from torch.utils.data import DataLoader, TensorDataset


def make_windows(cfg):
    n = cfg.n_windows + cfg.history + cfg.horizon
    t = torch.arange(n, dtype=torch.float32)
    gen = torch.Generator().manual_seed(cfg.seed)
    series = torch.sin(t / 7) + 0.4 * torch.sin(t / 3) + 0.1 * torch.randn(n, generator=gen)
    w = series.unfold(0, cfg.history + cfg.horizon, 1)[:cfg.n_windows]
    return w[:, :cfg.history], w[:, cfg.history:]


class ShardedWindows:
    def __init__(self, cfg, rank, world):
        self.cfg = cfg
        x, y = make_windows(cfg)
        per_rank = math.ceil(len(x) / (world * cfg.batch)) * cfg.batch
        block = slice(rank * per_rank, (rank + 1) * per_rank)
        self.data = TensorDataset(x[block], y[block])

    def loader(self, epoch):
        gen = torch.Generator().manual_seed(epoch)
        return DataLoader(self.data, batch_size=self.cfg.batch, shuffle=True, generator=gen)
