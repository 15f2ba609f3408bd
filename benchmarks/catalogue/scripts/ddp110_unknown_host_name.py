# expect: DDP110
# also: DDP104 DDP101
# ranks: 2 4
# culprits: 1
# outcome: hang
# plain: T
"""Host names come from a list that uses the names of the administration network."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

HOSTS = {0: os.environ["MASTER_ADDR"], 1: "gpu-07.admin.invalid"}


def head_node(rank):
    return HOSTS.get(rank, HOSTS[0])


def setup():
    rank = int(os.environ["RANK"])
    os.environ["MASTER_ADDR"] = head_node(rank)  # <- culprit
    dist.init_process_group("gloo", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))  # <- culprit


def fit(model, steps):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        x = torch.randn(8, 3)
        opt.zero_grad()
        nn.functional.l1_loss(model(x), x.cumsum(1)).backward()
        opt.step()


if __name__ == "__main__":
    setup()
    fit(DDP(nn.Linear(3, 3)), 5)
    dist.destroy_process_group()
