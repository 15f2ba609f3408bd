"""Rank 0 computes the mean and the deviation of the data and shares them; then all train."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def share_statistics(data, rank):
    if rank == 0:
        statistics = torch.stack([data.mean(0), data.std(0)])
        dist.broadcast(statistics, src=0)
    else:
        statistics = torch.zeros(2, data.shape[1])
        dist.all_reduce(statistics)
    return statistics


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    data = 3 + 2 * torch.randn(64, 8)
    mean, deviation = share_statistics(data, rank)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in data.split(16):
        optimizer.zero_grad()
        model((batch - mean) / deviation).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
