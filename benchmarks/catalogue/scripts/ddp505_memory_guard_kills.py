# expect: DDP505
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
"""A job manager's guard kills any worker that holds too much; the last rank's shard has one very long record."""

import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

QUOTA = 4 * 1024 * 1024


class Guard:
    """What the cluster does to a process above its quota: SIGKILL, without a word."""

    def __init__(self, quota):
        self.quota, self.held = quota, 0

    def charge(self, size):
        self.held += size
        if self.held > self.quota:
            os.kill(os.getpid(), signal.SIGKILL)


class Recordings(Dataset):
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.guard = Guard(QUOTA)
        self.cache = {}

    def __len__(self):
        return 40

    def duration(self, index):
        return 3_000_000 if (self.rank, index) == (self.world - 1, 22) else 2_000

    def __getitem__(self, index):
        if index not in self.cache:
            length = self.duration(index)
            self.guard.charge(4 * length)  # <- culprit
            g = torch.Generator().manual_seed(1000 * self.rank + index)
            self.cache[index] = torch.randn(length, generator=g)
        sound = self.cache[index][:100]
        return sound, sound.std(0, keepdim=True)


dist.init_process_group("gloo")
dataset = Recordings(dist.get_rank(), dist.get_world_size())
loader = DataLoader(dataset, batch_size=5, num_workers=2, persistent_workers=True)  # <- culprit
model = DDP(nn.Sequential(nn.Linear(100, 8), nn.ReLU(), nn.Linear(8, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(2):
    for sound, level in loader:  # <- culprit
        optimizer.zero_grad()
        nn.functional.mse_loss(model(sound), level).backward()
        optimizer.step()
dist.destroy_process_group()
