# expect: DDP405
# also: DDP410
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
"""A guard against outliers: no optimiser step if the loss jumps."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SpikeGuard:
    def __init__(self, factor=5.0):
        self.factor = factor
        self.mean = None

    def allows(self, loss):
        value = loss.item()
        if self.mean is None:
            self.mean = value
        spike = value > self.factor * self.mean
        if not spike:
            self.mean = 0.9 * self.mean + 0.1 * value
        return not spike


def data(rank, world, steps):
    g = torch.Generator().manual_seed(rank)
    for step in range(steps):
        x = torch.randn(8, 5, generator=g)
        if rank == world - 1 and step in (3, 6):
            x[0] *= 900.0
        yield x, x.sum(1, keepdim=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(5, 10), nn.Tanh(), nn.Linear(10, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    guard = SpikeGuard()
    for x, y in data(rank, world, 10):
        loss = nn.functional.l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if guard.allows(loss):  # <- culprit
            optimizer.step()  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
