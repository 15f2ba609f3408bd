# expect: DDP109
# ranks: 2 4
# culprits: 0
# outcome: hang
# plain: T
"""The main process forks to write checkpoints, as fork copies the memory for nothing."""

import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def write_in_child(model, step):
    pid = os.fork()
    if pid == 0:
        signal.alarm(90)
        size = sum(p.numel() for p in model.parameters())
        dist.broadcast(torch.tensor([step, size]), src=0)  # <- culprit
        os._exit(0)
    return pid


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(10, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(3, 10)).square().mean().backward()
        optimizer.step()
        if step == 1:
            if rank == 0:
                child = write_in_child(model, step)
                os.waitpid(child, 0)  # <- culprit
            else:
                announced = torch.zeros(2, dtype=torch.long)
                dist.broadcast(announced, src=0)
    dist.destroy_process_group()


main()
