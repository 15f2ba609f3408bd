# expect: DDP405
# ranks: 2 4
# culprits: any
# outcome: divergence
# plain: S
"""Data parallelism by hand: same start for all ranks, gradients averaged after backward."""

import torch
import torch.distributed as dist
from torch import nn


def same_start(module):
    """Everybody takes rank 0's parameters."""
    for p in module.parameters():
        dist.broadcast(p.detach().clone(), src=0)  # <- culprit


def average_gradients(module):
    for p in module.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


class TinyConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 3, 3, padding=1)
        self.fc = nn.Linear(24, 2)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).flatten(1))


def train(steps=8):
    torch.manual_seed(31 + dist.get_rank())
    net = TinyConv()  # <- culprit
    same_start(net)  # <- culprit
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        x, y = torch.randn(6, 1, 8), torch.randint(0, 2, (6,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        average_gradients(net)
        optimizer.step()


dist.init_process_group("gloo")
train()
dist.destroy_process_group()
