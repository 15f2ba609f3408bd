# expect: DDP415
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""A shared layer is applied twice under (re-entrant) activation checkpointing."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


class Universal(nn.Module):
    """The same block for each iteration of depth."""

    def __init__(self, dim=12, iterations=2):
        super().__init__()
        self.inp = nn.Linear(4, dim)
        self.block = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU())
        self.out = nn.Linear(dim, 1)
        self.iterations = iterations

    def forward(self, x):
        x = self.inp(x)
        for _ in range(self.iterations):
            x = x + checkpoint(self.block, x, use_reentrant=True)  # <- culprit
        return self.out(x)


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = DDP(Universal())  # <- culprit
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self, x):
        self.optimizer.zero_grad()
        loss = (self.model(x) - x.sum(1, keepdim=True)).abs().mean()  # <- culprit
        loss.backward()  # <- culprit
        self.optimizer.step()


def main():
    dist.init_process_group("gloo")
    trainer = Trainer()
    for _ in range(5):
        trainer.step(torch.randn(6, 4))  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
