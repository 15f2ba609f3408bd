import torch
from torch.utils.data import Dataset

SPECIES = ["acer", "betula", "fagus", "quercus", "salix"]


class LeafPhotos(Dataset):
    """Synthetic stand-in for the herbarium scans: blobs with a class-dependent tint."""

    def __init__(self, n=240, side=12, seed=3):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, len(SPECIES), (n,), generator=g)
        tint = torch.randn(len(SPECIES), 3, generator=g)
        self.images = torch.randn(n, 3, side, side, generator=g) + tint[self.labels][:, :, None, None]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]
