"""Train on a data set that is prepared once and kept in a cache file."""

import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def prepare(cache):
    if not os.path.exists(cache):
        time.sleep(0.5)  # read and tokenise
        data = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
        torch.save(data, cache)


def train(cache):
    rank, world = dist.get_rank(), dist.get_world_size()
    prepare(cache)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.load(cache)[rank::world]
    for x in data.split(8):
        loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory(prefix="cache-") as folder:
        name = [os.path.join(folder, "data.pt")]
        dist.broadcast_object_list(name, src=0)
        train(name[0])
        dist.barrier()
    dist.destroy_process_group()


main()
