"""Train for a few steps, then save a checkpoint from rank 0."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def save(model, path, rank):
    if rank == 0:
        torch.save(model.module.state_dict(), path)
    dist.barrier()  # nobody may read the file before it is written


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(6):
            optimizer.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
            if step % 3 == 2:
                save(model, os.path.join(folder, "last.pt"), rank)
    dist.destroy_process_group()


main()
