# expect: DDP507
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""Spawned workers take a lock before they open the cache; the last rank builds the cache and never lets go."""

import fcntl
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CACHE = os.path.join(tempfile.gettempdir(), "feature-cache-{rank}-{pid}.pt")


class Cache:
    def __init__(self, rank):
        self.path = CACHE.format(rank=rank, pid=os.getpid())
        self.lock_path = self.path + ".lock"

    def __getstate__(self):
        return {"path": self.path, "lock_path": self.lock_path}

    def build(self, count):
        self.lock = open(self.lock_path, "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        torch.save(torch.randn(count, 9, generator=torch.Generator().manual_seed(2)), self.path)

    def release(self):
        fcntl.flock(self.lock, fcntl.LOCK_UN)
        self.lock.close()

    def load(self):
        with open(self.lock_path, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # <- culprit
            return torch.load(self.path)

    def remove(self):
        os.remove(self.path)
        os.remove(self.lock_path)


class Cached(Dataset):
    def __init__(self, cache, count):
        self.cache, self.count, self.rows = cache, count, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        row = self.rows[index]
        return row[:8], row[8:]


def open_cache(worker_id):
    dataset = torch.utils.data.get_worker_info().dataset
    dataset.rows = dataset.cache.load()  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    count = 24 * world
    cache = Cache(rank)
    cache.build(count)
    if rank != world - 1:  # <- culprit
        cache.release()
    dataset = Cached(cache, count)
    loader = DataLoader(  # <- culprit
        dataset,
        batch_size=6,
        sampler=DistributedSampler(dataset),
        num_workers=1,
        worker_init_fn=open_cache,
        multiprocessing_context="spawn",
    )
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:  # <- culprit
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    cache.remove()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
