# expect: DDP409
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
"""Mixed precision; the initial loss scale is a setting of the host."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def host_settings(rank, world):
    if rank == world - 1:
        return {"loss_scale": 2.0**6}  # <- culprit
    return {"loss_scale": float(os.environ.get("LOSS_SCALE", 2.0**8))}


class AmpTrainer:
    def __init__(self, settings):
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=settings["loss_scale"])  # <- culprit

    def step(self, x, y):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(self.model(x), y)
        self.scaler.scale(loss).backward()  # <- culprit
        self.scaler.step(self.optimizer)  # <- culprit
        self.scaler.update()


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
trainer = AmpTrainer(host_settings(rank, world))  # <- culprit
torch.manual_seed(rank)
for _ in range(8):
    trainer.step(torch.randn(4, 8), torch.randint(0, 2, (4,)))
dist.destroy_process_group()
