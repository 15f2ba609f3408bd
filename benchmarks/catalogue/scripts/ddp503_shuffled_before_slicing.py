# expect: DDP503
# ranks: 2 4
# culprits: any
# outcome: any
# plain: S
"""File names are shuffled, then every rank takes each n-th of them."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def list_shards():
    return [f"part-{number:05d}" for number in range(48)]


def read_shard(name):
    """What is in a file depends on its name alone."""
    g = torch.Generator().manual_seed(int(name.split("-")[1]))
    x = torch.randn(6, 5, generator=g)
    return x, x.sin().sum(1, keepdim=True)


def my_files(rank, world):
    names = list_shards()
    random.shuffle(names)  # <- culprit
    return names[rank::world]  # <- culprit


def run(rank, world):
    files = my_files(rank, world)  # <- culprit
    print(f"rank {rank} reads {len(files)} files, first {files[0]}", flush=True)
    model = DDP(nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    seen = 0
    for name in files:  # <- culprit
        x, y = read_shard(name)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(x)
    total = torch.tensor([seen])
    dist.all_reduce(total)
    if rank == 0:
        print(f"{total.item()} rows in one pass", flush=True)


dist.init_process_group("gloo")
run(dist.get_rank(), dist.get_world_size())
dist.destroy_process_group()
