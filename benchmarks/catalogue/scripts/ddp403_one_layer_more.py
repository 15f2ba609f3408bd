# expect: DDP403
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
"""Depth comes from a configuration in which one host has an entry of its own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CONFIG = {"width": 12, "depth": 3, "lr": 1e-3}
OVERRIDES = {"node-last": {"depth": 4}}  # <- culprit


class ResidualMLP(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.inp = nn.Linear(6, width)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])  # <- culprit
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.out(x)


class Trainer:
    def __init__(self, config):
        torch.manual_seed(0)
        self.model = DistributedDataParallel(ResidualMLP(config["width"], config["depth"]))  # <- culprit
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config["lr"])

    def fit(self, steps):
        for _ in range(steps):
            x = torch.randn(8, 6)
            loss = (self.model(x) - x.sum(-1, keepdim=True)).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def configuration():
    host = "node-last" if dist.get_rank() == dist.get_world_size() - 1 else "node-a"  # <- culprit
    return {**CONFIG, **OVERRIDES.get(host, {})}  # <- culprit


dist.init_process_group("gloo")
Trainer(configuration()).fit(5)  # <- culprit
dist.destroy_process_group()
