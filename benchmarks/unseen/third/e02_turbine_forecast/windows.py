import torch
from torch.utils.data import Dataset

from sites import SITES, read_site


def standardise(table):
    mean = table.mean(0, keepdim=True)
    spread = table.std(0, keepdim=True)
    return (table - mean) / spread


class SiteWindows(Dataset):
    """Windows of `width` records; the target is the next power value."""

    def __init__(self, names, width=12):
        self.width = width
        self.tables = [standardise(read_site(n)) for n in names]
        self.index = [(t, s) for t, tab in enumerate(self.tables) for s in range(tab.shape[0] - width)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        t, s = self.index[i]
        rows = self.tables[t]
        return rows[s:s + self.width], rows[s + self.width, -1]


def sites_of(rank, world):
    return SITES[rank::world]
