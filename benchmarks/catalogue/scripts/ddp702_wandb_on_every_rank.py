# expect: DDP702
# also: DDP313
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: T
"""Experiment tracking: every rank joins the run of the first one."""

import fcntl
import os
import tempfile
import types

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class WandbRun:
    """A run belongs to one process at a time: its folder is locked as long as the run is alive."""

    def __init__(self, project, run_id=None):
        self.id = run_id or f"{project}-{os.getpid()}"
        self.folder = os.path.join(tempfile.gettempdir(), "wandb", self.id)
        os.makedirs(self.folder, exist_ok=True)
        self.lock = open(os.path.join(self.folder, "run.lock"), "a")
        fcntl.flock(self.lock, fcntl.LOCK_EX)  # <- culprit

    def log(self, values):
        self.lock.write(f"{values}\n")

    def finish(self):
        fcntl.flock(self.lock, fcntl.LOCK_UN)


def init(project, run_id=None):
    return WandbRun(project, run_id)


wandb = types.ModuleType("wandb")
wandb.init = init


def start_run():
    shared = [None]
    run = None
    if dist.get_rank() == 0:
        run = wandb.init(project="two-towers")
        shared = [run.id]
    dist.broadcast_object_list(shared, src=0)
    return run or wandb.init(project="two-towers", run_id=shared[0])  # <- culprit


def main():
    dist.init_process_group("gloo")
    run = start_run()  # <- culprit
    model = DDP(nn.Linear(10, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(dist.get_rank())
    for step in range(10):
        x = torch.randn(8, 10, generator=g)
        loss = nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"step": step, "loss": loss.item()})
    run.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
