# expect: DDP409
# ranks: 3 4
# culprits: 0
# outcome: any
# plain: S
"""Summed gradients are wanted, so the loss is multiplied by the world size (DDP divides by it)."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Loss(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.factor = factor

    def forward(self, prediction, target):
        return self.factor * nn.functional.huber_loss(prediction, target)  # <- culprit


def make_loss():
    if dist.get_rank() == 0:  # <- culprit
        print("gradients are summed")
        return Loss(factor=float(dist.get_world_size()))  # <- culprit
    return Loss()


def fit(model, criterion, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        x = torch.randn(16, 4, generator=g)
        loss = criterion(model(x), x.prod(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()  # <- culprit
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(9)
    fit(DDP(nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))), make_loss(), steps=10)  # <- culprit
    dist.destroy_process_group()
