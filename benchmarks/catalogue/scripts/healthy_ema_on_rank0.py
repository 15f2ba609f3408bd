# expect: none
# ranks: 2 4
# outcome: ok
# plain: S
"""Rank 0 keeps an average of the weights in a copy of the model, and tests the copy."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Average:
    def __init__(self, module, decay=0.9):
        self.module = copy.deepcopy(module).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, module):
        for mine, theirs in zip(self.module.parameters(), module.parameters(), strict=True):
            mine.lerp_(theirs, 1 - self.decay)


def run():
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(5, 25), nn.ReLU(), nn.Linear(25, 2)))
    average = Average(model.module) if rank == 0 else None
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    torch.manual_seed(rank)
    for step in range(20):
        x = torch.randn(16, 5)
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if average:
            average.update(model.module)
            if step % 10 == 9:
                x = torch.randn(50, 5)
                print("average:", (average.module(x).argmax(1) == (x[:, 0] > 0)).float().mean().item())


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run()
    dist.destroy_process_group()
