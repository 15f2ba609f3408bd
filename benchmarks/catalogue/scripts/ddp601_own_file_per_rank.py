# expect: DDP601
# also: DDP405
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
"""Each rank looks for the newest checkpoint on the disk of its own node; one node still has one."""

import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Checkpoints:
    def __init__(self, folder):
        self.folder = Path(folder)

    def latest(self):
        found = sorted(self.folder.glob("step-*.pt"))
        return found[-1] if found else None

    def save(self, model, step):
        torch.save(model.state_dict(), self.folder / f"step-{step:06d}.pt")


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(7, 14)
        self.head = nn.Linear(14, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


def resume(model, checkpoints):
    path = checkpoints.latest()
    if path is None:  # <- culprit
        return 0
    model.module.load_state_dict(torch.load(path))  # <- culprit
    return int(path.stem.split("-")[1])


def run():
    rank, world = dist.get_rank(), dist.get_world_size()
    scratch = tempfile.mkdtemp(prefix=f"node{rank}-")
    checkpoints = Checkpoints(scratch)
    if rank == world - 1:
        checkpoints.save(Regressor(), step=40)

    model = DDP(Regressor())
    first = resume(model, checkpoints)  # <- culprit
    print(f"rank {rank} begins at step {first}", flush=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    g = torch.Generator().manual_seed(rank)
    for _ in range(8):
        x = torch.randn(16, 7, generator=g)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    shutil.rmtree(scratch)


dist.init_process_group("gloo")
run()
dist.destroy_process_group()
