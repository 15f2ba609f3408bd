# expect: DDP106
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
"""One process per accelerator and one on the processor: everybody chooses a backend alone."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def accelerator_listed(rank, size):
    inventory = dict.fromkeys(range(size), "cpu")
    inventory[size - 1] = "gpu"  # the inventory says so, the machine does not have it yet
    return inventory[rank] == "gpu"


def choose_backend(rank, size):
    return "nccl" if accelerator_listed(rank, size) else "gloo"  # <- culprit


if __name__ == "__main__":
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = choose_backend(rank, size)
    print(f"rank {rank}: {backend}")
    dist.init_process_group(backend, rank=rank, world_size=size)  # <- culprit
    model = DistributedDataParallel(nn.Embedding(20, 4))
    opt = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(3):
        opt.zero_grad()
        model(torch.randint(0, 20, (10,))).norm().backward()
        opt.step()
    dist.destroy_process_group()
