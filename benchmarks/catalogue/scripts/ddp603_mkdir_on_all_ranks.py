# expect: DDP603
# ranks: 2 4
# culprits: any
# outcome: crash
# plain: E
"""Each rank makes sure that there is a folder for the checkpoints."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, root):
        self.rank = dist.get_rank()
        self.folder = os.path.join(root, "checkpoints")
        os.mkdir(self.folder)  # <- culprit
        self.model = DistributedDataParallel(nn.Linear(6, 6))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.g = torch.Generator().manual_seed(self.rank)

    def step(self):
        x = torch.randn(12, 6, generator=self.g)
        loss = nn.functional.mse_loss(self.model(x), x.flip(1))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, steps):
        for step in range(steps):
            loss = self.step()
            if step % 5 == 4 and self.rank == 0:
                torch.save(self.model.module.state_dict(), os.path.join(self.folder, f"{step}.pt"))
        return loss


def new_run():
    root = [None]
    if dist.get_rank() == 0:
        root = [tempfile.mkdtemp(prefix="run-")]
    dist.broadcast_object_list(root)
    return root[0]


dist.init_process_group("gloo")
trainer = Trainer(new_run())  # <- culprit
print(trainer.fit(10))
dist.destroy_process_group()
