# expect: DDP313
# also: DDP301
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: T
"""Preprocess once: whoever has the lock prepares the cache, all meet when it is there."""

import fcntl
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Cache:
    def __init__(self, rank):
        self.folder = pathlib.Path(tempfile.gettempdir()) / f"features-{os.environ['MASTER_PORT']}"
        self.folder.mkdir(exist_ok=True)
        self.rank = rank

    def __enter__(self):
        self.lock = open(self.folder / "lock", "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)  # <- culprit
        return self

    def __exit__(self, *_):
        fcntl.flock(self.lock, fcntl.LOCK_UN)
        self.lock.close()

    def prepare(self):
        gen = torch.Generator().manual_seed(0)
        torch.save(torch.randn(40, 6, generator=gen), self.folder / "features.pt")


def features(rank):
    if rank > 0:
        dist.barrier()  # the main process goes first
    with Cache(rank) as cache:
        if rank == 0:
            cache.prepare()
            dist.barrier()
        data = torch.load(cache.folder / "features.pt")
        dist.barrier()  # nobody leaves before everybody has read
    return data


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = features(rank)
    model = DDP(nn.Linear(6, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in data.split(10):
        opt.zero_grad()
        model(x).pow(2).mean().backward()
        opt.step()
    dist.destroy_process_group()


main()
