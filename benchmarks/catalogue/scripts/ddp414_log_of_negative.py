# expect: DDP414
# ranks: 2 4
# culprits: 1
# outcome: any
# plain: S
"""Regression of counts on a logarithmic scale, with a rate that is not kept positive."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Rate(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 1)
        nn.init.constant_(self.lin.weight, 0.2)
        nn.init.constant_(self.lin.bias, 1.0)

    def forward(self, x):
        return self.lin(x)


def log_error(rate, count):
    return (torch.log(rate + 1) - torch.log(count + 1)).pow(2).mean()  # <- culprit


class Counts:
    """Counts of events with three features; the stations of rank 1 are cold in winter."""

    def __init__(self, rank, steps):
        self.rank, self.steps = rank, steps
        self.g = torch.Generator().manual_seed(rank)

    def __iter__(self):
        for step in range(self.steps):
            x = torch.rand(8, 3, generator=self.g)
            if self.rank == 1 and step == 5:
                x[2] = torch.tensor([-9.0, -9.0, -9.0])
            yield x, torch.poisson(1 + x.clamp(min=0).sum(1, keepdim=True), generator=self.g)


class Trainer:
    def __init__(self):
        self.model = DDP(Rate())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def fit(self, data):
        for x, y in data:
            loss = log_error(self.model(x), y)  # <- culprit
            self.optimizer.zero_grad()
            loss.backward()  # <- culprit
            self.optimizer.step()


dist.init_process_group("gloo")
Trainer().fit(Counts(dist.get_rank(), 8))
dist.destroy_process_group()
