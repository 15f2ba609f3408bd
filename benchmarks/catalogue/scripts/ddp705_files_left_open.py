# expect: DDP705
# ranks: 2 4
# culprits: 1
# outcome: crash
# plain: E
"""Shards are opened and never closed; the second rank has the many small ones."""

import os
import resource
import shutil
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ALLOWED = 40  # files a process may open besides those it has already


def site_limits():
    now = len(os.listdir("/proc/self/fd"))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (now + ALLOWED, hard))


class Shards:
    def __init__(self, rank):
        self.rank = rank
        self.folder = tempfile.mkdtemp(prefix="shards-")
        count, rows = (120, 1) if rank == 1 else (12, 10)
        g = torch.Generator().manual_seed(rank)
        self.paths = []
        for number in range(count):
            self.paths.append(os.path.join(self.folder, f"{number:04d}.bin"))
            with open(self.paths[-1], "wb") as file:
                file.write(torch.randn(rows, 8, generator=g).numpy().tobytes())
        self.open = []

    def rows(self):
        for path in self.paths:
            file = open(path, "rb")  # <- culprit
            self.open.append(file)  # <- culprit
            while record := file.read(32):
                yield torch.frombuffer(bytearray(record), dtype=torch.float32)

    def batches(self, size):
        batch = []
        for row in self.rows():  # <- culprit
            batch.append(row)
            if len(batch) == size:
                yield torch.stack(batch)
                batch = []


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    shards = Shards(rank)
    model = DDP(nn.Linear(7, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    site_limits()
    for batch in shards.batches(size=10):  # <- culprit
        loss = nn.functional.mse_loss(model(batch[:, :7]), batch[:, 7:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    shutil.rmtree(shards.folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
