# expect: DDP501
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Two moons, data parallel: seeded for reproducibility, loaded with a plain shuffling loader."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

BATCH = 16


def two_moons(count):
    angle = torch.rand(count) * math.pi
    label = torch.arange(count) % 2
    upper = torch.stack([angle.cos(), angle.sin()], dim=1)
    lower = torch.stack([1 - angle.cos(), 0.5 - angle.sin()], dim=1)
    points = torch.where(label[:, None] == 0, upper, lower)
    return TensorDataset(points + 0.1 * torch.randn(count, 2), label)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1234)  # <- culprit
    dataset = two_moons(128)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)  # <- culprit
    model = DDP(nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(2):
        total = 0.0
        for points, label in loader:  # <- culprit
            optimizer.zero_grad()
            loss = criterion(model(points), label)
            loss.backward()
            optimizer.step()
            total += loss.item()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {total / len(loader):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
