# expect: DDP504
# also: DDP308
# ranks: 2 4
# culprits: 0
# outcome: any
# plain: R
"""Clips are sharded first; each rank then drops those that are too long for the model."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

MAX_LENGTH = 40


def manifest(world):
    """(identifier, length) of the clips, the long ones at the places that fall to the first rank."""
    rng = random.Random(3)
    clips = [(i, rng.randint(10, MAX_LENGTH)) for i in range(24 * world)]
    for i in range(0, 10 * world, world):
        clips[i] = (i, MAX_LENGTH + rng.randint(1, 30))
    return clips


class Clips(Dataset):
    def __init__(self, rank, world):
        mine = manifest(world)[rank::world]
        self.clips = [clip for clip in mine if clip[1] <= MAX_LENGTH]  # <- culprit

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        identifier, length = self.clips[index]
        g = torch.Generator().manual_seed(identifier)
        signal = torch.zeros(MAX_LENGTH)
        signal[:length] = torch.randn(length, generator=g)
        return signal, torch.tensor(length / MAX_LENGTH)


def fit(epochs=1):
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(Clips(rank, world), batch_size=4, shuffle=True)  # <- culprit
    model = DDP(nn.Sequential(nn.Linear(MAX_LENGTH, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for signal, share in loader:  # <- culprit
            loss = (model(signal).squeeze(1) - share).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


dist.init_process_group("gloo")
fit()  # <- culprit
print("done", flush=True)
