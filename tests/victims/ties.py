"""Two ranks that part silently, with the mistake on one of them: only its own past can tell which.

Usage: ties.py CASE RANK
"""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ExponentialLR, ReduceLROnPlateau


def training(steps=6, lr=0.1):
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)  # construction
    for step in range(steps):
        yield step, net, optimizer, model(torch.ones(2, 4) * step).sum()


def train(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def rate_by_environment(rank, wrong):
    for step, _, optimizer, loss in training():
        if os.environ["LOCAL_RANK"] == str(wrong):
            optimizer.param_groups[0]["lr"] = 0.5
        train(optimizer, loss)


def rate_by_rank(rank, wrong):
    for step, _, optimizer, loss in training():
        if dist.get_rank() == wrong:
            optimizer.param_groups[0]["lr"] = 0.5
        train(optimizer, loss)


def rate_by_variable(rank, wrong):
    local = wrong == dist.get_rank()
    for step, _, optimizer, loss in training():
        optimizer.param_groups[0]["lr"] = 0.5 if local else 0.1
        train(optimizer, loss)


def rate_later(rank, wrong):
    for step, _, optimizer, loss in training():
        if rank == wrong and step == 3:
            optimizer.param_groups[0]["lr"] = 0.5
        train(optimizer, loss)


def rate_of_its_own(rank, wrong):
    for step, _, optimizer, loss in training(lr=0.5 if rank == wrong else 0.1):
        train(optimizer, loss)


def scheduler_left_out(rank, wrong):
    scheduler = None
    for step, _, optimizer, loss in training():
        scheduler = scheduler or ExponentialLR(optimizer, 0.9)
        train(optimizer, loss)
        if rank != wrong or step != 3:
            scheduler.step()


def scheduler_alone(rank, wrong):
    scheduler = None
    for step, _, optimizer, loss in training():
        scheduler = scheduler or ExponentialLR(optimizer, 0.9)
        train(optimizer, loss)
        if rank == wrong:
            scheduler.step()  # alone


def plateau(rank, wrong):
    scheduler = None
    for step, _, optimizer, loss in training():
        scheduler = scheduler or ReduceLROnPlateau(optimizer, patience=1)
        train(optimizer, loss)
        scheduler.step(1.0 if rank == wrong else -float(step))  # plateau


def gradient_by_variable(rank, wrong):
    local = wrong == dist.get_rank()
    for step, net, optimizer, loss in training():
        optimizer.zero_grad()
        loss.backward()
        if local and step == 3:
            net.bias.grad.mul_(4)
        optimizer.step()


def gradient_after_clipping(rank, wrong):
    for step, net, optimizer, loss in training():
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        if rank == wrong and step == 3:
            net.bias.grad.mul_(4)
        optimizer.step()


def clips_alone(rank, wrong):
    for step, net, optimizer, loss in training():
        optimizer.zero_grad()
        loss.backward()
        if rank == wrong:
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()


def parameters_later(rank, wrong):
    for step, net, optimizer, loss in training():
        train(optimizer, loss)
        if rank == wrong and step == 3:
            net.bias.data.add_(1.0)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank(), int(sys.argv[2]))
    dist.barrier()
    dist.destroy_process_group()
