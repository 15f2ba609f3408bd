# expect: DDP705
# ranks: 2 4
# culprits: 0
# outcome: crash
# plain: E
"""The disk for the checkpoints is full."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def output_file():
    """A name in the project's folder that leads to the big disk."""
    link = os.path.join(tempfile.mkdtemp(), "model.pt")
    os.symlink("/dev/full", link)
    return link


class Trainer:
    def __init__(self, output):
        self.rank = dist.get_rank()
        self.output = output
        self.model = DDP(nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 20)))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.g = torch.Generator().manual_seed(self.rank)

    def step(self):
        x = torch.randn(4, 20, generator=self.g)
        loss = (self.model(x) - x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def save(self):
        if self.rank == 0:
            with open(self.output, "wb") as file:
                torch.save(self.model.module.state_dict(), file)  # <- culprit
        dist.barrier()

    def fit(self):
        for step in range(1, 10):
            self.step()
            if step % 3 == 0:
                self.save()  # <- culprit


dist.init_process_group("gloo")
Trainer(output_file()).fit()  # <- culprit
dist.destroy_process_group()
