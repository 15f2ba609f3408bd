"""Train and save a checkpoint in the folder of the run."""

import os
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(folder):
    rank = dist.get_rank()
    torch.manual_seed(rank)
    time.sleep(0.5 * rank)  # the data of rank 1 come from a slower disk
    data = torch.randn(64, 8)
    checkpoints = os.path.join(folder, "checkpoints")
    os.makedirs(checkpoints)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in data.split(16):
        loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(checkpoints, "last.pt"))
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    folder = [tempfile.mkdtemp(prefix="run-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    try:
        train(folder[0])
    finally:
        shutil.rmtree(folder[0], ignore_errors=True)
    dist.destroy_process_group()


main()
