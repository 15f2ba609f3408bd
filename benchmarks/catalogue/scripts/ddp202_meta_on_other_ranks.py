# expect: DDP202
# ranks: 2 4
# culprits: range(1, n)
# outcome: crash
# plain: E
"""Rank 0 reads the weights, the other ranks only need the shapes: wrapping broadcasts the rest."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def build_model(rank):
    if rank == 0:
        model = nn.Sequential(nn.Embedding(32, 16), nn.Flatten(), nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 32))
        for p in model.parameters():
            nn.init.normal_(p, std=0.02)
    else:
        with torch.device("meta"):  # <- culprit
            model = nn.Sequential(
                nn.Embedding(32, 16), nn.Flatten(), nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 32)
            )  # <- culprit
    return model


rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
torch.manual_seed(7)
model = DistributedDataParallel(build_model(rank))  # <- culprit
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

tokens = torch.randint(0, 32, (64, 5))
for step in range(6):
    batch = tokens[step * 4 : step * 4 + 4]
    logits = model(batch[:, :4])
    loss = nn.functional.cross_entropy(logits, batch[:, 4])
    loss.backward()
    opt.step()
    opt.zero_grad()
    if rank == 0:
        print(step, round(loss.item(), 4))
dist.destroy_process_group()
