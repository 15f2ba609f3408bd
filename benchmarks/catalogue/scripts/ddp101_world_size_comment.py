# expect: DDP101
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
"""Every host may override settings with a file of NAME=VALUE lines."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])

OVERRIDES = {
    SIZE - 1: f"""
        OMP_NUM_THREADS=1
        WORLD_SIZE={SIZE}  # both hosts
        """,
}


def apply_overrides(text):
    for line in text.splitlines():
        name, sep, value = line.strip().partition("=")
        if sep:
            os.environ[name] = value  # <- culprit


def train(steps=4):
    net = DDP(nn.Linear(6, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(steps):
        x = torch.randn(12, 6)
        loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


if __name__ == "__main__":
    apply_overrides(OVERRIDES.get(RANK, ""))
    dist.init_process_group("gloo")  # <- culprit
    print(f"rank {RANK}: {train():.4f}")
    dist.destroy_process_group()
