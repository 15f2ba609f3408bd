# expect: DDP407
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""The last rank also measures the time of the layers, for which it calls the bare network."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Profiler:
    def __init__(self, model):
        self.net = model.module
        self.seconds = 0.0

    def __call__(self, x):
        start = time.perf_counter()
        out = self.net(x)  # <- culprit
        self.seconds += time.perf_counter() - start
        return out


def forward_function(model, rank, world):
    if rank == world - 1:  # <- culprit
        return Profiler(model)  # <- culprit
    return model


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)))
    forward = forward_function(model, rank, world)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        x, y = torch.randn(4, 8), torch.randint(0, 4, (4,))
        loss = nn.functional.cross_entropy(forward(x), y)  # <- culprit
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
