"""Two ranks that part silently, with the mistake on rank 0: nothing but its own past can tell that it is rank 0."""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def training(steps=6):
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        yield step, net, optimizer, model(torch.ones(2, 4) * step).sum()


def train(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def rate_by_environment(rank):
    for step, _, optimizer, loss in training():
        if os.environ["LOCAL_RANK"] == "0":
            optimizer.param_groups[0]["lr"] = 0.5  # never: rank 1
        train(optimizer, loss)


def rate_by_rank(rank):
    for step, _, optimizer, loss in training():
        if dist.get_rank() == 0:
            optimizer.param_groups[0]["lr"] = 0.5  # never: rank 1
        train(optimizer, loss)


def gradient_by_variable(rank):
    local = 0 == dist.get_rank()
    for step, net, optimizer, loss in training():
        optimizer.zero_grad()
        loss.backward()
        if local and step == 3:
            net.bias.grad.mul_(4)  # never: rank 1
        optimizer.step()


def rate_later(rank):
    for step, _, optimizer, loss in training():
        if rank == 0 and step == 3:
            optimizer.param_groups[0]["lr"] = 0.5
        train(optimizer, loss)


def parameters_later(rank):
    for step, net, optimizer, loss in training():
        train(optimizer, loss)
        if rank == 0 and step == 3:
            net.bias.data.add_(1.0)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
    dist.barrier()
    dist.destroy_process_group()
