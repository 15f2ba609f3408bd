"""What ranks share beside collectives: files, locks, keys of a store, messages; and what their workers raise."""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, broken):
        self.broken = broken

    def __len__(self):
        return 24

    def __getitem__(self, number):
        if number == self.broken:
            raise ValueError(f"picture {number} has no label")  # culprit: worker_raises
        return torch.tensor([float(number)])


def worker_raises(rank):
    for values in DataLoader(Pictures(9 if rank == 2 else -1), batch_size=4, num_workers=1):
        dist.all_reduce(values)  # waiting: worker_raises


def keep_last(folder, step):
    os.remove(os.path.join(folder, f"step-{step - 1}.pt"))  # culprit: removed_file


def removed_file(rank):
    folder = os.path.join(tempfile.gettempdir(), "ddpnb-checkpoints")
    os.makedirs(folder, exist_ok=True)
    for step in range(2):
        if rank == 0:
            torch.save({"step": step}, f"{folder}/step-{step}.pt")
        dist.barrier()
    if rank == 0:
        keep_last(folder, step=1)
    dist.barrier()
    if rank == 3:
        torch.load(f"{folder}/step-0.pt")  # waiting: removed_file
    dist.barrier()  # waiting: removed_file


def package_lock(rank):
    from filelock import FileLock

    lock = FileLock(os.path.join(tempfile.gettempdir(), "ddpnb-cache.lock"))
    if rank == 0:
        lock.acquire()
    dist.barrier()
    if rank == 1:
        lock.acquire()  # culprit: package_lock
    dist.all_reduce(torch.ones(4))  # waiting: package_lock
    lock.release()


def store_key(rank):
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.set("best_lr", "0.1")
    if rank == 1:
        store.wait(["best-lr"])  # culprit: store_key
    dist.all_reduce(torch.ones(4))  # waiting: store_key


def another_tag(rank):
    """The sides number their messages differently from the second one on."""
    x = torch.zeros(4)
    if rank == 0:
        for tag in (0, 2):
            dist.send(x, dst=1, tag=tag)  # culprit: another_tag
        dist.recv(x, src=1)
    elif rank == 1:
        for tag in (0, 1):
            dist.recv(x, src=0, tag=tag)  # culprit: another_tag
        dist.send(x, dst=0)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
