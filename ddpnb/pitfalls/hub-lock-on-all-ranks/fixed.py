"""Start from weights of a hub, which are kept in a cache behind a lock."""

import contextlib
import fcntl
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@contextlib.contextmanager
def hub_lock(folder):
    with open(os.path.join(folder, "hub.lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(folder, rank):
    path, net = os.path.join(folder, "weights.pt"), nn.Linear(8, 1)
    time.sleep(0.3 * rank)  # rank 0 comes first
    if rank == 0 and not os.path.exists(path):
        with hub_lock(folder):
            torch.save(nn.Linear(8, 1).state_dict(), path)  # the download
    dist.barrier()
    net.load_state_dict(torch.load(path))
    return DistributedDataParallel(net)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory(prefix="hub-cache-") as folder:
        name = [folder]
        dist.broadcast_object_list(name, src=0)
        model = build(name[0], rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
