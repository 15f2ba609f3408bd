"""Train on shards: the list of files is shuffled, and each rank takes every other one."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def read(name):
    """The rows of a shard; they depend on its name alone."""
    x = torch.randn(16, 5, generator=torch.Generator().manual_seed(int(name[5:9])))
    return x, x.sum(1, keepdim=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    random.seed(rank)
    files = [f"part-{n:04}.bin" for n in range(24)]
    random.shuffle(files)
    model = DistributedDataParallel(nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for name in files[rank::world]:
        x, y = read(name)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
