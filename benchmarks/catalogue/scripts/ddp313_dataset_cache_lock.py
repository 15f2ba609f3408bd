# expect: DDP313
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: T
# Re-enacts: huggingface/datasets #1672, #3983 and modelscope #1778 (a cache lock that is never given back)
import fcntl
import os
import pickle
import tempfile

import torch
import torch.distributed as dist
from torch.nn import Linear, functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class FileLock:
    def __init__(self, path):
        self.path, self.fd = path, None

    def acquire(self):
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self.fd, fcntl.LOCK_EX)  # <- culprit

    def release(self):
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        os.close(self.fd)


def preprocess():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(64, 8, generator=g)
    return x, x.sum(1, keepdim=True)


_LOCKS = {}


def load_dataset(folder, name="train"):
    """Every process may call it, the first one does the work."""
    target = os.path.join(folder, name + ".pkl")
    lock = _LOCKS.setdefault(target, FileLock(target + ".lock"))
    lock.acquire()  # <- culprit
    if os.path.exists(target):
        with open(target, "rb") as f:
            data = pickle.load(f)
        lock.release()
        return TensorDataset(*data)
    data = preprocess()
    with open(target, "wb") as f:
        pickle.dump(data, f)
    return TensorDataset(*data)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = [tempfile.mkdtemp()] if rank == 0 else [None]
    dist.broadcast_object_list(folder, src=0)
    if rank == 0:
        load_dataset(folder[0])
    dist.barrier()
    data = load_dataset(folder[0]) if rank else TensorDataset(*preprocess())  # <- culprit
    torch.manual_seed(0)
    model = DDP(Linear(8, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    sampler = DistributedSampler(data)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=8, sampler=sampler):
            opt.zero_grad()
            F.mse_loss(model(x), y).backward()
            opt.step()
    dist.destroy_process_group()


main()
