"""Ranks that train without a wrapper, by mistake or on purpose."""
import sys

import torch
import torch.distributed as dist
from torch import nn


def train(model, rank, lr=0.01, between=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(6):
        x = torch.randn(8, 16, generator=generator)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if between is not None:
            between(model)
        optimizer.step()  # culprit: forgotten
        dist.all_reduce(loss.detach())


def forgotten(model, rank):
    train(model, rank)


def averaged(model, rank):
    def average(model):
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()

    train(model, rank, between=average)


def search(model, rank):
    train(model, rank, lr=0.01 * (1 + rank))


def actors(_, rank):
    model = nn.Linear(16, 8 + rank)
    train(model, rank)


dist.init_process_group("gloo")
torch.manual_seed(0)
globals()[sys.argv[1]](nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 4)), dist.get_rank())
dist.destroy_process_group()
