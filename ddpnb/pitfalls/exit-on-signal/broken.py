"""Train until the scheduler announces by SIGUSR1 that the time is over."""

import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def leave(number, frame):
    print("time is over", flush=True)
    os._exit(128 + number)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    signal.signal(signal.SIGUSR1, leave)
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        if rank == 1 and step == 4:
            os.kill(os.getpid(), signal.SIGUSR1)  # stands for the scheduler of this node
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
