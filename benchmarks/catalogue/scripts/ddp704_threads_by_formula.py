# expect: DDP704
# ranks: 2 4
# culprits: range(n)
# outcome: ok
# plain: L
"""Threads are computed per process from the cores of the machine, generously, and once more for the decoding pool."""

import os
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Resources:
    def __init__(self):
        cores = os.cpu_count()
        self.compute = 16 * cores  # <- culprit
        self.decode = 16 * cores  # <- culprit

    def apply(self):
        torch.set_num_threads(self.compute)  # <- culprit
        return ThreadPoolExecutor(self.decode)  # <- culprit


def decode(seed):
    g = torch.Generator().manual_seed(seed)
    picture = torch.rand(64, 64, generator=g)
    return (picture @ picture.T).softmax(1).flatten()[:512], seed % 5


def batches(pool, rank, count, size=48):
    for number in range(count):
        first = (rank * count + number) * size
        pictures, labels = zip(*pool.map(decode, range(first, first + size)), strict=True)
        yield torch.stack(pictures), torch.tensor(labels)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pool = Resources().apply()  # <- culprit
    model = DDP(nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for pictures, labels in batches(pool, rank, count=4):
        loss = nn.functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    pool.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
