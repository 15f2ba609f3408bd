# expect: DDP308
# also: DDP504
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: R
"""Samples dealt out by hand; the number of samples is not a multiple of the world size."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Shard(Dataset):
    def __init__(self, samples, rank, size):
        self.samples = samples[rank::size]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        x = self.samples[i]
        return x, x.sum().sign().clamp_min(0).long()


def train(model, loader, epochs):
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    gen = torch.Generator().manual_seed(1)
    samples = torch.randn(size * 12 + size - 1, 6, generator=gen)
    loader = DataLoader(Shard(samples, rank, size), batch_size=4)  # <- culprit
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2)))
    print(rank, len(loader), "batches", train(model, loader, epochs=1))


if __name__ == "__main__":
    main()
