"""Train; then rank 0 evaluates, while the others wait for it in a group of their own."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LIMIT = 900


@torch.no_grad()
def evaluate(model, seconds):
    end = time.perf_counter() + seconds
    errors = []
    while time.perf_counter() < end:
        errors.append(model(torch.randn(64, 8)).square().mean())
    return torch.stack(errors).mean().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    waiting = dist.new_group(timeout=timedelta(seconds=LIMIT))
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
    if rank == 0:
        print(f"error {evaluate(model.module, seconds=2.0):.4f}")
    dist.barrier(group=waiting)
    dist.destroy_process_group()


main()
