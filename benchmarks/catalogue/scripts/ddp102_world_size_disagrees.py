# expect: DDP102
# also: DDP101
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""Settings come from a small file beside the script; one machine has last month's."""

import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

n = int(os.environ["WORLD_SIZE"])
CURRENT = json.dumps({"processes": n, "hidden": 16})
LAST_MONTH = json.dumps({"processes": n + 2, "hidden": 16})


def load_settings(rank):
    return json.loads(LAST_MONTH if rank == n - 1 else CURRENT)


def build(hidden):
    return nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, 1))


if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    settings = load_settings(rank)
    dist.init_process_group("gloo", rank=rank, world_size=settings["processes"])  # <- culprit
    net = DDP(build(settings["hidden"]))
    optimizer = torch.optim.Adam(net.parameters())
    for step in range(4):
        optimizer.zero_grad()
        loss = net(torch.randn(10, 3)).abs().mean()
        loss.backward()
        optimizer.step()
    print(rank, loss.item())
    dist.destroy_process_group()
