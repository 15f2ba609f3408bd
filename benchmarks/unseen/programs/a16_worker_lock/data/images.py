import torch
from torch.utils.data import DataLoader, Dataset

from . import store


class BlobDataset(Dataset):
    def __init__(self, rank, n):
        g = torch.Generator().manual_seed(rank)
        self.n = n
        for i in range(n):
            store.put(i, torch.randn(12, generator=g))

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = store.get(i)
        return x, (x.sum() > 0).long()


def stale(keys, rank, leader):
    """Blobs that the inventory of the leader marks as outdated."""
    return [k for k in keys if (k % 4 == 0) and rank == leader]


def make_loader(rank, n, batch, leader=1):
    data = BlobDataset(rank, n)
    if outdated := stale(range(n), rank, leader):
        store.refresh_in_background(outdated)
    return DataLoader(data, batch_size=batch, num_workers=2, drop_last=True)
