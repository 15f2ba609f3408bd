import os
import signal

import torch
from torch.utils.data import Dataset

LIMIT = 48 * 48 * 48


class Cgroup:
    """Stands for the memory controller of the job."""

    def __init__(self, limit):
        self.limit = limit

    def charge(self, cells):
        if cells > self.limit:
            os.kill(os.getpid(), signal.SIGKILL)


class Volumes(Dataset):
    def __init__(self, ids):
        self.ids = list(ids)
        self.memory = Cgroup(LIMIT)

    def __len__(self):
        return len(self.ids)

    @staticmethod
    def edge(i):
        return 16 + 4 * (i % 5) if i % 60 != 37 else 64

    def __getitem__(self, at):
        i = self.ids[at]
        edge = self.edge(i)
        self.memory.charge(edge ** 3)
        gen = torch.Generator().manual_seed(i)
        volume = torch.randn(edge, edge, edge, generator=gen)
        pooled = torch.nn.functional.adaptive_avg_pool3d(volume[None], 4)
        return pooled.flatten() * edge, torch.tensor([float(i % 2)])
