# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Four small batches to a step, synchronised at the fourth; gradients are clipped after that."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATE = 4


class Trainer:
    def __init__(self):
        self.model = DDP(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def micro_step(self, x, last):
        context = contextlib.nullcontext() if last else self.model.no_sync()
        with context:
            loss = nn.functional.mse_loss(self.model(x), x.amax(1, keepdim=True)) / ACCUMULATE
            loss.backward()
        return loss.item()

    def step(self, batches):
        self.optimizer.zero_grad()
        loss = sum(self.micro_step(x, last=i == ACCUMULATE - 1) for i, x in enumerate(batches))
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
trainer = Trainer()
for _ in range(6):
    loss = trainer.step([torch.randn(4, 10) for _ in range(ACCUMULATE)])
print(f"rank {dist.get_rank()}: {loss:.4f}", flush=True)
dist.destroy_process_group()
