"""Start from weights that rank 0 converts from another format."""

import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def convert(path):
    time.sleep(0.5)  # a large file
    torch.save(nn.Linear(8, 1).state_dict(), path)


def train(path):
    rank = dist.get_rank()
    torch.manual_seed(rank)
    if rank == 0:
        convert(path)
    dist.barrier()
    net = nn.Linear(8, 1)
    net.load_state_dict(torch.load(path))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        x = torch.randn(16, 8)
        loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory(prefix="run-") as folder:
        name = [os.path.join(folder, "start.pt")]
        dist.broadcast_object_list(name, src=0)
        train(name[0])
        dist.barrier()
    dist.destroy_process_group()


main()
