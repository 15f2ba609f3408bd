# expect: DDP406
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
"""Class weights in a buffer, refreshed from the labels of the local shard."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CLASSES = 3


class WeightedClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, CLASSES)
        self.register_buffer("class_weight", torch.ones(CLASSES))

    def forward(self, x, y):
        return nn.functional.cross_entropy(self.net(x), y, weight=self.class_weight)

    def set_weights(self, counts):
        self.class_weight.copy_(counts.sum() / (CLASSES * counts.clamp(min=1)))  # <- culprit


class Trainer:
    def __init__(self):
        rank, world = dist.get_rank(), dist.get_world_size()
        self.y = torch.arange(60) % CLASSES
        if rank == world - 1:
            self.y[self.y == 2] = 0  # the shard of the last rank lacks a class
        self.x = torch.randn(60, 6, generator=torch.Generator().manual_seed(rank))
        torch.manual_seed(0)
        self.model = DDP(WeightedClassifier(), broadcast_buffers=False)  # <- culprit
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def fit(self):
        for i in range(0, 60, 10):
            loss = self.model(self.x[i : i + 10], self.y[i : i + 10])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.model.module.set_weights(torch.bincount(self.y, minlength=CLASSES).float())  # <- culprit


dist.init_process_group("gloo")
Trainer().fit()
dist.destroy_process_group()
