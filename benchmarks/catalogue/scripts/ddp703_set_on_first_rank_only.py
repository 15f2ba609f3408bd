# expect: DDP703
# ranks: 2 4
# culprits: 0
# outcome: ok
# plain: S
"""The first rank is told to be talkative; with it comes an old variable that changes how it waits."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VERBOSE = {"NCCL_DEBUG": "INFO", "NCCL_BLOCKING_WAIT": "1", "NCCL_ASYNC_ERROR_HANDLING": "0"}


def configure_logging():
    if os.environ["RANK"] == "0":  # <- culprit
        for name, value in VERBOSE.items():
            os.environ[name] = value  # <- culprit


def loop(model, optimizer, g):
    for _ in range(6):
        x = torch.rand(8, 3, generator=g)
        loss = nn.functional.mse_loss(model(x), x.prod(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


configure_logging()  # <- culprit
dist.init_process_group("gloo")  # <- culprit
model = DDP(nn.Sequential(nn.Linear(3, 10), nn.SiLU(), nn.Linear(10, 1)))
optimizer = torch.optim.Rprop(model.parameters())
for loss in loop(model, optimizer, torch.Generator().manual_seed(dist.get_rank())):
    if dist.get_rank() == 0:
        print(f"{loss:.4f}", flush=True)
dist.destroy_process_group()
