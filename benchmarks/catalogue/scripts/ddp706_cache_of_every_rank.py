# expect: DDP706
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: R
# needs: memory-group
"""Every rank keeps its samples in memory; the container of the last rank is smaller than its cache."""

import os
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def container(megabytes):
    """What the scheduler does for a task with --mem: a group of processes with a limit."""
    root = pathlib.Path("/sys/fs/cgroup/memory")
    limit = "memory.limit_in_bytes" if root.is_dir() else "memory.max"
    group = (root if root.is_dir() else root.parent) / f"task-{os.getpid()}"
    group.mkdir()
    (group / limit).write_text(str(megabytes << 20))
    (group / "cgroup.procs").write_text(str(os.getpid()))


class Cached:
    def __init__(self):
        self.kept = []

    def sample(self):
        self.kept.append(torch.ones(16, 1 << 20))  # <- culprit
        return self.kept[-1][:, :16]


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DDP(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Cached()
    if rank == size - 1:
        container(250)
    for step in range(8):
        model(data.sample()).sum().backward()  # <- culprit
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


main()  # <- culprit
