# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""The same data set everywhere, split by a sampler; flips, noise and dropout are random on each rank by itself."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Augmented(Dataset):
    def __init__(self, count, rank):
        g = torch.Generator().manual_seed(3)
        self.signal = torch.randn(count, 2, 24, generator=g)
        self.label = (self.signal[:, 0].sum(1) > self.signal[:, 1].sum(1)).long()
        self.random = random.Random(rank)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, index):
        signal = self.signal[index]
        if self.random.random() < 0.5:
            signal = signal.flip(-1)
        shift = self.random.randrange(24)
        return signal.roll(shift, -1) + 0.05 * torch.randn_like(signal), self.label[index]


def seed(base, rank):
    torch.manual_seed(base + rank)


def main(base=2024):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    seed(base, rank)
    dataset = Augmented(128, rank)
    sampler = DistributedSampler(dataset, seed=base)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    net = nn.Sequential(nn.Conv1d(2, 8, 5), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(160, 2))
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for signal, label in loader:
            loss = nn.functional.cross_entropy(model(signal), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"rank {rank}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


main()
