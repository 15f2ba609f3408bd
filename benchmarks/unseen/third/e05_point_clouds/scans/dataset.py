import random
import zlib

import torch
from torch.utils.data import Dataset


class ScanShard(Dataset):
    """Shuffles the catalogue once and keeps this rank's contiguous part of it."""

    def __init__(self, scans, rank, world, points=64):
        scans = list(scans)
        random.shuffle(scans)
        per_rank = len(scans) // world
        self.scans = scans[rank * per_rank:(rank + 1) * per_rank]
        self.points = points

    def __len__(self):
        return len(self.scans)

    def __getitem__(self, i):
        name, label = self.scans[i]
        g = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        cloud = torch.randn(self.points, 3, generator=g)
        cloud[:, label % 3] *= 1.0 + label
        return cloud, label
