"""Train, and validate on rank 0, in a job that may use 250 MB more than at its start."""

import contextlib
import os
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

V1 = pathlib.Path("/sys/fs/cgroup/memory")
ROOT, LIMIT = (V1, "memory.limit_in_bytes") if V1.is_dir() else (V1.parent, "memory.max")


@contextlib.contextmanager
def job(limit):  # as a scheduler does for --mem
    group = ROOT / f"job-{os.environ['MASTER_PORT']}"
    group.mkdir(exist_ok=True)
    (group / LIMIT).write_text(limit)
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (ROOT / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(OSError):
            group.rmdir()  # the last rank to leave can


@torch.no_grad()
def validate(model):
    return sum(model(torch.randn(1024, 32)).square().mean() for _ in range(150)) / 150


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 1024), nn.ReLU(), nn.Linear(1024, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    with job("250M"):
        for step in range(8):
            optimizer.zero_grad()
            model(torch.randn(16, 32)).square().mean().backward()
            optimizer.step()
            if step % 4 == 3 and rank == 0:
                print(f"step {step}: validation {validate(model.module):.4f}")
    dist.destroy_process_group()


main()
