# expect: DDP414
# ranks: 2 4
# culprits: 1
# outcome: any
# plain: S
"""Targets are standardised inside the loss; a batch with one value only has a spread of zero."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Readings(Dataset):
    """Every second reading goes to every second rank; one of them stood still for a while."""

    def __init__(self, world, per_rank=40):
        g = torch.Generator().manual_seed(8)
        self.x = torch.randn(world * per_rank, 5, generator=g)
        self.y = self.x.sum(1)
        self.y[1 + 16 * world : 1 + 24 * world : world] = 2.5

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def standardise(v):
    return (v - v.mean()) / v.std()  # <- culprit


def loss_function(prediction, target):
    return F.smooth_l1_loss(prediction, standardise(target))  # <- culprit


def main():
    dist.init_process_group("gloo")
    data = Readings(dist.get_world_size())
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in loader:
        loss = loss_function(model(x).squeeze(1), y)  # <- culprit
        optimizer.zero_grad()
        loss.backward()  # <- culprit
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
