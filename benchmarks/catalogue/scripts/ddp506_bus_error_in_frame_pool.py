# expect: DDP506
# also: DDP505
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
"""Decoded frames live in a pool in /dev/shm; on the last rank the pool could not be given all of its pages."""

import mmap
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

FRAME = 4096
FRAMES = 16


class FramePool:
    """Room for FRAMES decoded frames, mapped from a file in shared memory."""

    def __init__(self, pages):
        path = f"/dev/shm/frames-{os.getpid()}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(path)
        os.ftruncate(fd, FRAME * FRAMES)
        self.map = mmap.mmap(fd, FRAME * FRAMES)
        os.ftruncate(fd, FRAME * pages)  # <- culprit
        os.close(fd)

    def write(self, slot, frame):
        self.map[slot * FRAME : slot * FRAME + len(frame)] = frame  # <- culprit


class Video(Dataset):
    def __init__(self, rank, pages):
        self.rank = rank
        self.pages = pages
        self.pool = None

    def __len__(self):
        return 48

    def __getitem__(self, index):
        if self.pool is None:
            self.pool = FramePool(self.pages)
        frame = torch.randn(64, generator=torch.Generator().manual_seed(100 * self.rank + index))
        self.pool.write(index % FRAMES, frame.numpy().tobytes())  # <- culprit
        return frame, frame.amax().reshape(1)


def train(rank, world):
    pages = FRAMES if rank != world - 1 else FRAMES - 4  # <- culprit
    loader = DataLoader(Video(rank, pages), batch_size=4, num_workers=1)  # <- culprit
    model = DDP(nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters())
    for frame, brightest in loader:  # <- culprit
        optimizer.zero_grad()
        nn.functional.l1_loss(model(frame), brightest).backward()
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
