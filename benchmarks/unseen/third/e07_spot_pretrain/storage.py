"""Where the ranks read from, and where the job keeps its snapshots."""
import os
import tempfile

import torch
from torch.utils.data import Dataset

# Rank 1 sits on the host without a local disk: it reads over the network.
MOUNTS = {0: "nvme", 1: "nfs"}


class Frames(Dataset):
    def __init__(self, n=384):
        g = torch.Generator().manual_seed(77)
        self.x = torch.randn(n, 20, generator=g)
        self.y = self.x @ torch.randn(20, 3, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def loader_options(rank):
    match MOUNTS.get(rank, "nvme"):
        case "nfs":
            return {"num_workers": 2, "prefetch_factor": 2}
        case _:
            return {"num_workers": 0}


def snapshot_path(rank):
    job = os.environ.get("MASTER_PORT", "0")
    return os.path.join(tempfile.gettempdir(), f"spot_{job}_rank{rank}.pt")
