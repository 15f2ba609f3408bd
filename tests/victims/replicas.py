"""Replicas that part without a word, at step 5 (counted from 0) of a training of 9."""
import os
import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BEGINS, STEPS = 5, 9


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 64)
        self.norm = nn.BatchNorm1d(64)
        self.wide = nn.Linear(64, 300)  # more than one part is digested of it
        self.head = nn.Linear(300, 2)

    def forward(self, x):
        return self.head(self.wide(self.norm(self.body(x)).relu()).relu())


class Training:
    """One step at a time, so that a case can do what it likes in between."""

    def __init__(self, rank, make=lambda parameters: torch.optim.SGD(parameters, lr=0.05), **options):
        torch.manual_seed(0)
        self.model = DDP(Net(), **options)  # culprit: statistics
        self.optimizer = make(self.model.parameters())
        self.data = torch.Generator().manual_seed(rank)

    def backward(self):
        self.optimizer.zero_grad()
        self.model(torch.randn(4, 8, generator=self.data)).square().mean().backward()

    def step(self):
        self.backward()
        self.optimizer.step()


def healthy(rank):
    training = Training(rank)
    for step in range(STEPS):
        training.step()


def edited(rank):
    training = Training(rank)
    for step in range(STEPS):
        if rank == 2 and step == BEGINS:
            with torch.no_grad():
                training.model.module.head.bias[1] += 0.5
        training.step()


def edited_a_little(rank):
    training = Training(rank)
    for step in range(STEPS):
        if rank == 0 and step == BEGINS:
            weight = training.model.module.wide.weight.data
            weight[299, 63] = torch.nextafter(weight[299, 63], torch.tensor(9.0))
        training.step()


def rate(rank):
    training = Training(rank)
    for step in range(STEPS):
        if rank == 1 and step == BEGINS:
            training.optimizer.param_groups[0]["lr"] = 0.04
        training.step()


def momentum(rank):
    training = Training(rank, lambda parameters: torch.optim.Adam(parameters, lr=0.01))
    for step in range(STEPS):
        training.backward()
        if rank == 3 and step == BEGINS:
            state = training.optimizer.state[training.model.module.head.weight]
            state["exp_avg"].zero_()
        training.optimizer.step()


def statistics(rank):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        training = Training(rank, broadcast_buffers=False)
    for step in range(STEPS):
        training.step()


def not_synchronised(rank):
    training = Training(rank)
    for step in range(STEPS):
        if step == BEGINS:
            with training.model.no_sync():
                training.step()
        else:
            training.step()


def gradient(rank):
    training = Training(rank)
    for step in range(STEPS):
        training.backward()
        if rank == 1 and step == BEGINS:
            training.model.module.body.bias.grad[0] += 0.25
        training.optimizer.step()


def hangs(rank):
    """Parted, and then one of them leaves."""
    training = Training(rank)
    for step in range(STEPS):
        training.step()
    with torch.no_grad():
        if rank == 2:
            training.model.module.head.bias[1] += 0.5
    if rank != 1:
        dist.barrier()


def goes_on(rank):
    """Two models are trained until the file is there, on the same batches everywhere; one of them has parted."""
    first, second = Training(0), Training(0)
    with torch.no_grad():
        if rank == 1:
            first.model.module.wide.bias[7] += 2.0
    step = 0
    while True:
        first.step()
        second.step()
        told = torch.tensor([float(os.path.exists(sys.argv[2]) or step > 4000)])
        dist.all_reduce(told)
        if told:
            return
        step += 1


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for case in sys.argv[1].split(","):  # a model each
        globals()[case](dist.get_rank())
