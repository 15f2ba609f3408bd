"""Synthetic photographs of steel plates: clean, scratched, cracked."""
import torch
from torch.utils.data import Dataset


class PlateImages(Dataset):
    def __init__(self, n, seed, cracked, size=16):
        g = torch.Generator().manual_seed(seed)
        self.kind = torch.randint(2, (n,), generator=g)
        self.kind[list(cracked)] = 2
        self.images = 0.4 * torch.randn(n, 1, size, size, generator=g)
        self.images[self.kind == 1, :, size // 2] += 1.5
        self.images[self.kind == 2, :, :, size // 3] += 1.5

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, index):
        kind = self.kind[index]
        return self.images[index], kind > 0, kind
