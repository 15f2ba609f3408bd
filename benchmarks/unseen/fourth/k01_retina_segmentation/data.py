import torch
from torch.utils.data import Dataset

CLASSES = ("background", "vessel", "disc")


class FundusPatches(Dataset):
    """Synthetic stand-in for the 24x24 patches that we cut from fundus images."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.images = torch.rand(n, 3, 24, 24, generator=g)
        brightness = self.images.mean(1)
        self.masks = torch.zeros(n, 24, 24, dtype=torch.long)
        self.masks[brightness > 0.55] = 1
        self.masks[brightness > 0.7] = 2

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.masks[i]
