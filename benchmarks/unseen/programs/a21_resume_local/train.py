import argparse
import contextlib
import os
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

from checkpoint import CheckpointManager


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--warm-steps", type=int, default=8)
    p.add_argument("--lr", type=float, default=0.02)
    return p.parse_args()


def new_model(lr):
    torch.manual_seed(4)
    model = DDP(nn.Sequential(nn.Linear(9, 20), nn.Tanh(), nn.Linear(20, 1)))
    return model, torch.optim.Adam(model.parameters(), lr=lr)


def batches(rank, start, stop):
    for step in range(start, stop):
        g = torch.Generator().manual_seed(step * 100 + rank)
        x = torch.randn(32, 9, generator=g)
        yield step, x, x.prod(1, keepdim=True).tanh() + x[:, :1]


def advance(model, optimizer, rank, start, stop):
    for step, x, y in batches(rank, start, stop):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return stop, loss.item()


@contextlib.contextmanager
def local_disk(rank):
    """Every worker keeps its files on its own disk; the newest machine of the job starts with an empty one."""
    path = tempfile.mkdtemp(prefix=f"disk{rank}_")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def main():
    args = parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    with local_disk(rank) as disk:
        first, opt = new_model(args.lr)
        manager = CheckpointManager(os.path.join(disk, "run"))
        done, _ = advance(first, opt, rank, 0, args.warm_steps)
        if rank != world - 1:
            manager.save(done, first, opt)
        dist.barrier()

        model, opt = new_model(args.lr)
        start = manager.restore(model, opt)
        _, loss = advance(model, opt, rank, args.warm_steps, args.warm_steps + args.steps)
        if rank == 0:
            print(f"resumed at {start}, loss {loss:.4f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
