# expect: DDP603
# ranks: 2 4
# culprits: any
# outcome: crash
# plain: E
"""Only the newest two checkpoints are kept; the tidying up is done everywhere."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

KEEP = 2


class CheckpointManager:
    def __init__(self, folder):
        self.folder = Path(folder)

    def save(self, model, epoch):
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), self.folder / f"epoch-{epoch:03d}.pt")
        dist.barrier()
        self.tidy()  # <- culprit

    def tidy(self):
        every = sorted(self.folder.glob("epoch-*.pt"))
        dist.barrier()
        for path in every[:-KEEP]:
            path.unlink()  # <- culprit


dist.init_process_group("gloo")
rank = dist.get_rank()
shared = [tempfile.mkdtemp(prefix="ckpt-") if rank == 0 else ""]
dist.broadcast_object_list(shared, src=0)
manager = CheckpointManager(shared[0])

model = DDP(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
generator = torch.Generator().manual_seed(40 + rank)

for epoch in range(5):
    for _ in range(3):
        x = torch.randn(6, 4, generator=generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), 2 * x).backward()
        optimizer.step()
    manager.save(model, epoch)  # <- culprit

dist.destroy_process_group()
