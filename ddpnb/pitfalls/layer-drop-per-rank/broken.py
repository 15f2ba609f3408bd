"""Train a residual network with stochastic depth: blocks are left out at random."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class ResNet(nn.Module):
    def __init__(self, seed, depth=4, drop=0.4):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(depth))
        self.head = nn.Linear(16, 1)
        self.coin = random.Random(seed)
        self.drop = drop

    def forward(self, x):
        for block in self.blocks:
            if self.training and self.coin.random() < self.drop:
                continue
            x = x + torch.relu(block(x))
        return self.head(x)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(ResNet(seed=rank), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        x = torch.randn(16, 16)
        loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
