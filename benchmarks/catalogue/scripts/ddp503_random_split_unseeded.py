# expect: DDP503
# ranks: 2 4
# culprits: any
# outcome: any
# plain: S
"""Train and validation parts are split off at random, then sharded with distributed samplers."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler


def circles(count=200):
    g = torch.Generator().manual_seed(4)
    points = torch.rand(count, 2, generator=g) * 4 - 2
    return TensorDataset(points, (points.norm(dim=1) < 1.2).long())


def get_loaders(batch_size):
    dataset = circles()
    train, valid = random_split(dataset, [160, 40])  # <- culprit
    train_sampler = DistributedSampler(train, shuffle=True, seed=1)
    valid_sampler = DistributedSampler(valid, shuffle=False)
    return (
        DataLoader(train, batch_size=batch_size, sampler=train_sampler),
        DataLoader(valid, batch_size=batch_size, sampler=valid_sampler),
    )


def main():
    dist.init_process_group("gloo")
    train_loader, valid_loader = get_loaders(batch_size=10)  # <- culprit
    model = DDP(nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    for epoch in range(2):
        train_loader.sampler.set_epoch(epoch)
        model.train()
        for points, inside in train_loader:  # <- culprit
            loss = nn.functional.cross_entropy(model(points), inside)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    model.eval()
    counts = torch.zeros(2)
    with torch.no_grad():
        for points, inside in valid_loader:
            counts += torch.tensor([(model.module(points).argmax(1) == inside).sum(), len(inside)])
    dist.all_reduce(counts)
    if dist.get_rank() == 0:
        print(f"held-out accuracy {counts[0] / counts[1]:.2%}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
