"""Real DDP training that goes wrong."""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x):
        return self.body(x)


def train(rank, steps, before=lambda step: None):
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        before(step)
        loss = model(torch.randn(6, 8)).sum()  # waiting: uneven
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def uneven(rank):
    train(rank, 12 if rank == 0 else 10)


def uneven_then_barrier(rank):
    train(rank, 10 if rank == 3 else 12)
    dist.barrier()  # culprit: uneven_then_barrier


def killed(rank):
    def die(step):
        if rank == 1 and step == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    train(rank, 10, die)


def left(rank):
    def leave(step):
        if rank == 2 and step == 3:
            os._exit(7)

    train(rank, 10, leave)


def raised(rank):
    def fail(step):
        if rank == 1 and step == 3:
            raise ValueError("bad batch")  # culprit: raised

    train(rank, 10, fail)


def exits(rank):
    def leave(step):
        if rank == 1 and step == 3:
            sys.exit(5)  # culprit: exits

    train(rank, 10, leave)


def all_raise(rank):
    import_error = {}["missing"]  # culprit: all_raise


def cleaned_up(rank):
    try:
        raised(rank)
    finally:
        dist.destroy_process_group()


def evaluate_on_zero(rank):
    model = train(rank, 3)
    model.train()
    if rank == 0:
        model(torch.randn(6, 8))  # culprit: evaluate_on_zero


def wrapped_on_some(rank):
    net = Net()
    if rank != 3:
        net = DDP(net)  # waiting: wrapped_on_some
    dist.barrier()  # culprit: wrapped_on_some


def short_timeout(rank):
    if rank == 0:
        time.sleep(30)
    dist.all_reduce(torch.ones(3))  # waiting: short_timeout


if __name__ == "__main__":
    from datetime import timedelta

    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(seconds=3 if sys.argv[1] == "short_timeout" else 1800))
    globals()[sys.argv[1]](dist.get_rank())
