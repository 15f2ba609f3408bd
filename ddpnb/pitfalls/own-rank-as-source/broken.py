"""Data parallelism by hand: the same weights at the start, then averaged gradients."""

import torch
import torch.distributed as dist
from torch import nn


def share_weights(model):
    rank = dist.get_rank()
    for p in model.parameters():
        dist.broadcast(p.data, src=rank)


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = nn.Linear(8, 1)
    share_weights(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        average_gradients(model)
        optimizer.step()
    dist.destroy_process_group()


main()
