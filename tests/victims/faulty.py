"""Healthy trainings, for faults to be injected into: each case the ordinary thing, on all ranks alike."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, random_split


class Samples(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(8, generator=generator), torch.randn(1, generator=generator)


def collectives():
    """Every step makes three different calls."""
    other = dist.new_group()
    dist.barrier(group=other)
    for step in range(8):
        loss = torch.full((4, 4), float(step + dist.get_rank()))
        dist.all_reduce(loss)
        rate = torch.tensor([0.1 * step])
        dist.broadcast(rate, 0)
        dist.barrier()


def alike():
    """Two calls that look alike, from two lines."""
    for step in range(8):
        loss, count = torch.ones(1) * step, torch.ones(1)
        dist.all_reduce(loss)
        dist.all_reduce(count)


class Net(nn.Module):
    def __init__(self, frozen=False):
        super().__init__()
        self.register_buffer("scale", torch.ones(8))
        self.first, self.second = nn.Linear(8, 16), nn.Linear(8, 16)
        self.out = nn.Linear(16, 1)
        self.out.requires_grad_(not frozen)

    def forward(self, x):
        x = x * self.scale
        return self.out(self.first(x).relu() * self.second(x))


def normalised():
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))


def training(workers=0, net=normalised, epochs=2, pause=0.0, **options):
    """DDP with a distributed sampler."""
    torch.manual_seed(0)
    data, _ = random_split(Samples(), [256, 64])
    sampler = DistributedSampler(data, seed=3)
    model = DistributedDataParallel(net(), **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=workers)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            time.sleep(pause)


def slowly():
    training(epochs=1, pause=0.5)


def workers():
    training(workers=1)


def own_buffers():
    """Buffers that nobody changes are left to each rank."""
    training(net=Net, broadcast_buffers=False)


def unused_allowed():
    training(net=Net, find_unused_parameters=True)


def partly_frozen():
    training(net=lambda: Net(frozen=True))


CASES = (collectives, alike, training, slowly, workers, own_buffers, unused_allowed, partly_frozen)

dist.init_process_group("gloo")
{one.__name__: one for one in CASES}[sys.argv[1]]()
dist.destroy_process_group()
