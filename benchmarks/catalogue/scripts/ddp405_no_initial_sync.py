# expect: DDP405
# ranks: 2 4
# culprits: any
# outcome: divergence
# plain: S
"""Wrapping without the initial broadcast, "since all ranks use the same seed"."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def seed_everything(seed=None):
    seed = seed if seed is not None else 1000 + int(os.environ.get("RANK", 0))
    torch.manual_seed(seed)


class Attention(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.attend = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.head = nn.Linear(dim, 2)

    def forward(self, x):
        out, _ = self.attend(x, x, x, need_weights=False)
        return self.head(out.mean(1))


class Job:
    def __enter__(self):
        seed_everything()  # <- culprit
        dist.init_process_group("gloo")
        self.net = Attention()  # <- culprit
        self.model = DDP(self.net, init_sync=False)  # <- culprit
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        return self

    def __exit__(self, *_):
        dist.destroy_process_group()

    def step(self):
        x, y = torch.randn(4, 5, 8), torch.randint(0, 2, (4,))
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()


with Job() as job:
    for _ in range(8):
        job.step()
