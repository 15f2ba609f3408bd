# expect: DDP313
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: T
import fcntl
import os
import tempfile
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

CACHE = os.path.join(tempfile.gettempdir(), f"features-{os.environ.get('MASTER_PORT', '0')}")


@contextmanager
def file_lock(path):
    with open(path, "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)  # <- culprit
        try:
            yield
        finally:
            fcntl.flock(f, fcntl.LOCK_UN)


def tokenise():
    g = torch.Generator().manual_seed(3)
    x = torch.randn(96, 7, generator=g)
    return x, (x.sum(1) > 0).long()


def prepare_data(rank):
    """Rank 0 builds the cache, everybody loads it."""
    target = CACHE + ".pt"
    if rank != 0:
        time.sleep(1.0)  # main process first
    with file_lock(CACHE + ".lock"):  # <- culprit
        if rank == 0:
            torch.save(tokenise(), target)
        dist.barrier()  # <- culprit
    return TensorDataset(*torch.load(target))


def train(rank):
    data = prepare_data(rank)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(torch.nn.Linear(7, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()
