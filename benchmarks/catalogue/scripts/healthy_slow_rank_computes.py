# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""The last rank evaluates a long series in one of its steps; the others wait for some seconds, and that is all."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def long_series(seconds):
    """Pi, slowly, in plain Python."""
    total, term, until = 0.0, 0, time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(10_000):
            total += (-1) ** term / (2 * term + 1)
            term += 1
    return 4 * total


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    g = torch.Generator().manual_seed(rank)
    model = DDP(nn.Linear(10, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        x = torch.randn(8, 10, generator=g)
        if step == 3 and rank == world - 1:
            print(f"rank {rank}: pi is about {long_series(7):.5f}", flush=True)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
