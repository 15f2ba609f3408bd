import torch
import torch.nn.functional as F
from torch.utils.data import Dataset


class GridFields(Dataset):
    """Smooth random fields on a 16x16 grid, and their 8x8 averages."""

    def __init__(self, n, seed):
        gen = torch.Generator().manual_seed(seed)
        rough = torch.randn(n, 1, 6, 6, generator=gen)
        self.fine = F.interpolate(rough, size=16, mode="bilinear")
        self.coarse = F.avg_pool2d(self.fine, 2)

    def __len__(self):
        return len(self.fine)

    def __getitem__(self, i):
        return self.coarse[i], self.fine[i]
