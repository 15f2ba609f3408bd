# expect: DDP105
# ranks: 2 4
# culprits: 0
# outcome: crash
# plain: E
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Evaluator:
    """Taken from another project, where it runs in a process of its own."""

    def __init__(self, model):
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        dist.init_process_group("gloo")  # <- culprit
        self.model = model

    @torch.no_grad()
    def __call__(self, x, y):
        return (self.model(x).argmax(1) == y).float().mean().item()


def step(model, opt, x, y):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    return loss.detach()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    model = DistributedDataParallel(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for _ in range(3):
            x = torch.randn(10, 8)
            step(model, opt, x, (x.sum(1) > 0).long())
        if rank == 0 and epoch == 1:
            evaluate = Evaluator(net)  # <- culprit
            x = torch.randn(50, 8)
            print("accuracy", evaluate(x, (x.sum(1) > 0).long()))
    dist.destroy_process_group()


main()
