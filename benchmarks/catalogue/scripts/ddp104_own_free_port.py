# expect: DDP104
# also: DDP101
# ranks: 2 4
# culprits: any
# outcome: hang
# plain: T
"""Each process looks for a free port before it joins."""

import os
import socket

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def init_distributed():
    address = f"tcp://127.0.0.1:{free_port()}"  # <- culprit
    dist.init_process_group(  # <- culprit
        backend="gloo",
        init_method=address,
        world_size=int(os.environ["WORLD_SIZE"]),
        rank=int(os.environ["RANK"]),
    )


def train_epoch(model, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


init_distributed()
ddp = DDP(nn.Linear(5, 1))
sgd = torch.optim.SGD(ddp.parameters(), lr=0.1)
for epoch in range(2):
    print(dist.get_rank(), epoch, train_epoch(ddp, sgd, [(torch.randn(9, 5), torch.randn(9, 1))] * 3))
dist.destroy_process_group()
