# expect: DDP410
# ranks: 2 4
# culprits: 0
# outcome: divergence
# plain: S
"""The scheduler was moved into the branch that logs."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self):
        self.rank = dist.get_rank()
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(5, 20), nn.SiLU(), nn.Linear(20, 3)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=2, gamma=0.5)
        self.generator = torch.Generator().manual_seed(self.rank)
        self.history = []

    def step(self):
        x = torch.randn(8, 5, generator=self.generator)
        y = torch.randint(0, 3, (8,), generator=self.generator)
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()  # <- culprit
        return loss.item()

    def log(self, loss):
        self.scheduler.step()  # <- culprit
        self.history.append((loss, self.scheduler.get_last_lr()[0]))

    def fit(self, steps):
        for _ in range(steps):
            loss = self.step()
            if self.rank == 0:  # <- culprit
                self.log(loss)  # <- culprit


dist.init_process_group("gloo")
Trainer().fit(10)
dist.destroy_process_group()
