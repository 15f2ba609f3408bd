"""Train until the validation error no longer falls."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def samples(count, noise, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=generator)
    return x, x.sum(1, keepdim=True) + noise * torch.randn(count, 1, generator=generator)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    x, y = samples(64, noise=0.1, seed=rank)
    x_val, y_val = samples(32, noise=0.1 + 0.9 * rank, seed=10 + rank)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    best = float("inf")
    for epoch in range(100):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            error = nn.functional.mse_loss(model.module(x_val), y_val)
            dist.all_reduce(error)
            error /= dist.get_world_size()
        if error.item() > 0.99 * best:
            break
        best = error.item()
    print(f"rank {rank}: stopped after epoch {epoch}, error {error.item():.4f}")
    dist.destroy_process_group()


main()
