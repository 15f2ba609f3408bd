"""Hierarchical SGD: gradients are averaged within an island at every step, weights between islands now and then."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import topology

STEPS, SYNC_EVERY = 24, 6


def digits(rank, n=256):
    g = torch.Generator().manual_seed(40 + rank)
    y = torch.randint(0, 10, (n,), generator=g)
    x = torch.randn(n, 1, 8, 8, generator=g) * 0.3
    x[torch.arange(n), 0, y % 8, :] += 1.0
    return x, y


def main():
    torch.manual_seed(7)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 10))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = digits(rank)
    island = topology.join_island(rank, world)
    peers = dist.get_world_size(island)
    bridge = dist.new_group()  # traffic between the islands
    for step in range(STEPS):
        idx = torch.arange(step * 16, step * 16 + 16) % len(x)
        opt.zero_grad()
        loss = F.cross_entropy(model(x[idx]), y[idx])
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=island)
            p.grad /= peers
        opt.step()
        if (step + 1) % SYNC_EVERY == 0:
            for p in model.parameters():
                dist.all_reduce(p.data, group=bridge)
                p.data /= world
            if rank == 0:
                print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
